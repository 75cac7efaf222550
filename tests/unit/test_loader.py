import contextlib
import itertools
import time

import psutil
import pytest
import torch
from torch.utils.data import IterableDataset

from autotune.errors import ConfigError, WorkloadError
from autotune.loader import build_loader, endless, resident_batch
from autotune.settings import Settings
from autotune.workloads.workload import Workload


class Numbers:
    """Sample `i` is `i`; notes which were read."""

    def __init__(self, length: int, broken: int | None = None):
        self.length = length
        self.broken = broken
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.broken:
            raise ValueError(f"sample {index} is broken")
        self.read.append(index)
        return torch.tensor(index)


class Stream(IterableDataset):
    def __init__(self, length: int):
        self.length = length

    def __iter__(self):
        return iter(torch.arange(self.length))


class OnePass(IterableDataset):
    """A stream that is used up after its first pass."""

    def __init__(self, length: int):
        self.rest = iter(range(length))

    def __iter__(self):
        return self.rest


def workload(dataset, *, collate=None, shuffle: bool = True, drop_last: bool = True) -> Workload:
    return Workload(
        dataset=dataset,
        collate=collate,
        build_model=lambda: torch.nn.Identity(),
        loss=None,
        build_optimizer=lambda parameters, fused: None,
        shuffle=shuffle,
        drop_last=drop_last,
        resident=False,
    )


def take(work: Workload, settings: Settings, batches: int, seed: int = 0) -> list[list[int]]:
    with contextlib.closing(endless(build_loader(work, settings, seed=seed))) as stream:
        return [batch.tolist() for batch in itertools.islice(stream, batches)]


def children_left(before: set[psutil.Process], patience_s: float = 10.0) -> set[psutil.Process]:
    """Return child processes that were not there before and do not end."""
    end = time.monotonic() + patience_s
    while (left := set(psutil.Process().children(recursive=True)) - before) and (
        time.monotonic() < end
    ):
        time.sleep(0.02)
    return left


def test_settings_arrive():
    settings = Settings(batch_size=3, num_workers=2, prefetch_factor=5, persistent_workers=True)
    loader = build_loader(workload(Numbers(10)), settings, seed=0)
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (3, 2, 5)
    assert loader.persistent_workers
    assert not loader.pin_memory
    assert loader.drop_last


def test_without_workers_there_is_nothing_to_prefetch():
    loader = build_loader(workload(Numbers(10)), Settings(batch_size=2, pin_memory=True), seed=0)
    assert loader.prefetch_factor is None
    assert loader.pin_memory


@pytest.mark.parametrize(
    "settings",
    [
        Settings(batch_size=4, num_workers=2),
        Settings(batch_size=4, num_workers=2, prefetch_factor=1, persistent_workers=True),
    ],
    ids=["new workers", "persistent workers"],
)
def test_order_is_the_same_in_every_trial_and_pass(settings: Settings):
    # Ten samples are two full batches a pass: five batches reach into the third pass.
    work = workload(Numbers(10))
    expected = take(work, Settings(batch_size=4), 5)
    assert take(work, settings, 5) == expected
    assert expected[:2] != expected[2:4], "every pass is shuffled anew"
    assert take(work, settings, 5, seed=1) != expected


def test_without_shuffling():
    batches = take(workload(Numbers(5), shuffle=False, drop_last=False), Settings(batch_size=2), 4)
    assert batches == [[0, 1], [2, 3], [4], [0, 1]]


def test_streams_keep_their_order():
    assert take(workload(Stream(5)), Settings(batch_size=2), 3) == [[0, 1], [2, 3], [0, 1]]


def test_collate_is_used():
    def doubled(samples):
        return 2 * torch.stack(samples)

    batches = take(workload(Numbers(2), shuffle=False, collate=doubled), Settings(batch_size=2), 1)
    assert batches == [[0, 2]]


@pytest.mark.parametrize("drop_last", [True, False])
def test_batch_larger_than_the_dataset(drop_last: bool):
    with pytest.raises(ConfigError, match="batch_size: got 64; allowed: at most 10"):
        build_loader(workload(Numbers(10), drop_last=drop_last), Settings(batch_size=64), seed=0)


def test_stream_too_short_for_a_batch():
    with pytest.raises(WorkloadError, match="the data gave no batch"):
        take(workload(Stream(3)), Settings(batch_size=4), 1)


def test_stream_of_one_pass():
    work = workload(OnePass(4))
    with pytest.raises(WorkloadError, match="iterated more than once"):
        take(work, Settings(batch_size=2), 3)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("batches", [1, 3])
def test_no_worker_survives(persistent: bool, batches: int):
    before = set(psutil.Process().children(recursive=True))
    settings = Settings(batch_size=2, num_workers=2, persistent_workers=persistent)
    loader = build_loader(workload(Numbers(4)), settings, seed=0)
    stream = endless(loader)
    for _ in range(batches):
        next(stream)
    assert set(psutil.Process().children(recursive=True)) > before
    stream.close()
    assert children_left(before) == set()


def test_no_worker_survives_a_broken_sample():
    before = set(psutil.Process().children(recursive=True))
    settings = Settings(batch_size=1, num_workers=2, persistent_workers=True)
    loader = build_loader(workload(Numbers(4, broken=2), shuffle=False), settings, seed=0)
    with pytest.raises(ValueError, match="sample 2 is broken"):
        list(endless(loader))
    assert children_left(before) == set()


def test_resident_batch_reads_few_samples_from_all_over():
    data = Numbers(6400)
    batch = resident_batch(workload(data), 100)
    assert batch.shape == (100,)
    assert data.read == list(range(0, 6400, 200))
    assert batch[:33].tolist() == [*data.read, 0]


def test_resident_batch_of_few_samples():
    assert resident_batch(workload(Numbers(2)), 5).tolist() == [0, 1, 0, 1, 0]
    assert resident_batch(workload(Numbers(9)), 3).tolist() == [0, 3, 6]


def test_resident_batch_of_a_stream():
    assert resident_batch(workload(Stream(1000)), 40)[30:34].tolist() == [30, 31, 0, 1]
    with pytest.raises(WorkloadError, match="no sample"):
        resident_batch(workload(Stream(0)), 4)


def test_resident_batch_is_collated():
    assert resident_batch(workload(Numbers(4), collate=len), 7) == 7
