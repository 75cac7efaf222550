"""DataLoaders with exactly the given settings, and batches from them without end."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Sequence
from multiprocessing import connection
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, default_collate

from autotune.errors import WorkerDied, WorkloadError, config_error
from autotune.interrupts import die_with_parent
from autotune.settings import Settings
from autotune.workloads.workload import Workload

_RESIDENT_SAMPLES = 32
"""Samples read for a resident batch. Its content hardly matters for speed, reading it does."""

_DEATH_IS_TOLD_S = 1.0
"""Seconds at most between a broken connection to a worker and the news of its death."""


def build_loader(workload: Workload, settings: Settings, *, seed: int) -> DataLoader[Any]:
    """Build the DataLoader of a trial. No worker starts before it is iterated.

    Map-style data come in the same order for one seed, whatever the settings and in every pass:
    the sampler has a generator of its own, since DataLoader draws the workers' seeds from its
    generator once more when workers do not persist, which would shift the order.

    Args:
        workload: Dataset, collate, shuffle and drop_last.
        settings: How it is loaded.
        seed: Seed of the order and of the workers.

    Raises:
        ConfigError: The batch is larger than the dataset.
    """
    dataset = workload.dataset
    sampler = None
    if not isinstance(dataset, IterableDataset):
        samples = _length(dataset)
        if settings.batch_size > samples:
            raise config_error(
                "batch_size",
                settings.batch_size,
                f"at most {samples}, the number of samples in the dataset",
            )
        if workload.shuffle:
            sampler = RandomSampler(dataset, generator=_generator(seed))  # type: ignore[arg-type]
    return DataLoader(
        dataset,
        batch_size=settings.batch_size,
        sampler=sampler,
        num_workers=settings.num_workers,
        collate_fn=workload.collate,
        pin_memory=settings.pin_memory,
        drop_last=workload.drop_last,
        prefetch_factor=settings.prefetch_factor,
        persistent_workers=settings.persistent_workers,
        worker_init_fn=_begin_worker,
        generator=_generator(seed),
    )


def endless(loader: DataLoader[Any]) -> Generator[Any, None, None]:
    """Yield batches for ever, pass after pass.

    Closing the generator (`contextlib.closing`) ends the workers, persistent ones too, and so does
    an exception of the loader.

    Raises:
        WorkloadError: A pass gave no batch.
        WorkerDied: A worker ended.
    """
    batches = None
    try:
        while True:
            batches = iter(loader)
            empty = True
            for batch in batches:
                empty = False
                yield batch
            if empty:
                raise WorkloadError(
                    "data: the data gave no batch in a whole pass. Check that the dataset can be "
                    "iterated more than once, and that one batch fills up (loader.drop_last=false "
                    "keeps a smaller one)."
                )
    except (RuntimeError, OSError, EOFError) as error:
        _tell_death(batches, error)
        raise
    finally:
        _end_workers(loader, batches)


def one_pass(loader: DataLoader[Any]) -> Generator[Any, None, None]:
    """Yield the batches of one pass; close the generator to end it, and the workers, earlier.

    Workers that do not answer when it is closed, as after a time limit, are killed.

    Raises:
        WorkerDied: A worker ended.
    """
    batches = iter(loader)
    try:
        yield from batches
    except Exception as error:
        if isinstance(error, (RuntimeError, OSError, EOFError)):
            _tell_death(batches, error)
        raise
    except BaseException:  # closed, or out of time
        _kill_workers(batches)
        raise
    finally:
        _end_workers(loader, batches)


def resident_batch(
    workload: Workload, batch_size: int, samples: Sequence[Any] | None = None
) -> Any:
    """Return one batch made without a DataLoader, to be kept on the device.

    Args:
        workload: Dataset and collate.
        batch_size: Samples in the batch.
        samples: What it is made of, repeated; None to read them.

    Raises:
        WorkloadError: The data gave no sample.
    """
    if samples is None:
        samples = resident_samples(workload, batch_size)
    collate = workload.collate or default_collate
    return collate(list(itertools.islice(itertools.cycle(samples), batch_size)))


def resident_samples(workload: Workload, batch_size: int) -> list[Any]:
    """Return what a resident batch is made of: a few samples, from all over the dataset.

    Raises:
        WorkloadError: The data gave no sample.
    """
    dataset = workload.dataset
    wanted = min(batch_size, _RESIDENT_SAMPLES)
    if isinstance(dataset, IterableDataset):
        samples = list(itertools.islice(iter(dataset), wanted))
    else:
        length = _length(dataset)
        wanted = min(wanted, length)
        samples = [dataset[i * length // wanted] for i in range(wanted)]
    if not samples:
        raise WorkloadError("data: the data gave no sample.")
    return samples


def _tell_death(batches: Any, error: BaseException) -> None:
    """Raise `WorkerDied` if a worker is gone.

    The same death is told in several ways (seen: RuntimeError, ConnectionResetError, EOFError), and
    a dataset may raise each of them.
    """
    if (code := _exit_code(batches, wait=isinstance(error, (OSError, EOFError)))) is not None:
        raise WorkerDied(f"a DataLoader worker died: {error}", code) from error


def _kill_workers(batches: Any) -> None:
    """Kill the workers of an iterator: waiting for a stuck one takes torch 5 s each."""
    for worker in getattr(batches, "_workers", ()):
        with contextlib.suppress(RuntimeError):  # torch's handler of SIGCHLD raises right here
            worker.kill()
            worker.join()


def _exit_code(batches: Any, *, wait: bool) -> int | None:
    """Return the exit code of a worker that has ended, or None where all go on.

    Args:
        batches: Iterator of a DataLoader.
        wait: The connection to a worker broke, which the kernel tells before the death itself.
    """
    workers = getattr(batches, "_workers", ())
    if wait and workers:
        with contextlib.suppress(RuntimeError):  # torch's handler of SIGCHLD raises right here
            ended = connection.wait([each.sentinel for each in workers], _DEATH_IS_TOLD_S)
            for worker in workers:
                if worker.sentinel in ended:  # its files are closed; it may take a moment to go
                    worker.join(_DEATH_IS_TOLD_S)
    # A worker whose share of a stream is used up ends with 0 before the others, and is not missed.
    return next((each.exitcode for each in workers if each.exitcode), None)


def _end_workers(loader: DataLoader[Any], batches: Any) -> None:
    # DataLoader has no public way to end workers now rather than when the last reference to its
    # iterator goes; a traceback or, with persistent workers, the loader itself may hold one.
    if (shutdown := getattr(batches, "_shutdown_workers", None)) is not None:
        shutdown()
    loader._iterator = None


def _begin_worker(number: int) -> None:
    # Torch's own watchdog looks between samples only: one that takes long would outlive its trial.
    die_with_parent()


def _length(dataset: Dataset[Any]) -> int:
    # Dataset does not declare the length that build_workload made sure of.
    return len(dataset)  # type: ignore[arg-type]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
