"""The last, partial batch of a pass, which a short window seldom meets and a real run always does.

A single sample breaks batch normalisation ("Expected more than 1 value per channel when training"),
and a new shape may need memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import IterableDataset

from autotune.errors import ConfigError, config_error
from autotune.measurement import FailureKind
from autotune.settings import CompileMode, Settings
from autotune.trial import failures
from autotune.workloads.workload import Workload

_OF_THE_BATCH = (FailureKind.USER_ERROR, FailureKind.NON_FINITE)
"""Failures of a step that its few samples may be the reason for."""


def tail_samples(workload: Workload, batch_size: int) -> int | None:
    """Return the samples of the last batch of a pass; None where it is full, dropped or unknown."""
    if workload.drop_last or workload.resident or isinstance(workload.dataset, IterableDataset):
        return None
    return len(workload.dataset) % batch_size or None  # type: ignore[arg-type]


def untried_note(samples: int, settings: Settings) -> str | None:
    """Return why the tail batch is not tried under these settings, or None if it is to be."""
    if settings.compile is CompileMode.OFF:
        return None
    return (
        f"the last batch of a pass holds {samples} samples and was not tried: a new shape compiles "
        "again, for tens of seconds; loader.drop_last=true leaves it out"
    )


class UntrainableTail(ConfigError):  # noqa: N818 - names what it is
    """The last, partial batch of a pass cannot be trained."""

    setting = "batch_size"


def train_tail(
    step: Callable[[], Any], samples: int, settings: Settings, device: torch.device
) -> None:
    """Train one step on the tail batch.

    cuDNN's search is off meanwhile: it takes seconds for a new shape.

    Args:
        step: Trains it, waits for the device, and looks at the loss.
        samples: Samples in it.
        settings: What it is trained with.
        device: Where.

    Raises:
        UntrainableTail: It cannot be trained. Lack of memory comes out as it is.
    """
    searching = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        step()
    except Exception as error:
        if failures.classify(error, device) not in _OF_THE_BATCH:
            raise
        raise _untrainable(samples, settings, error) from error
    finally:
        torch.backends.cudnn.benchmark = searching


@contextmanager
def blamed_on_the_tail(
    samples: Callable[[], int | None], settings: Settings, device: torch.device
) -> Iterator[None]:
    """Tell an error as the tail batch's where one was the last that came.

    A stream, or a window as long as a pass, meets it before `train_tail` does.

    Args:
        samples: Tells the samples of the last batch; None before the first.
        settings: What is trained with.
        device: Where.

    Raises:
        UntrainableTail: The last batch was a smaller one, and it cannot be trained.
    """
    try:
        yield
    except Exception as error:
        last = samples()
        if last is None or last >= settings.batch_size:
            raise
        if failures.classify(error, device) not in _OF_THE_BATCH:
            raise
        raise _untrainable(last, settings, error) from error


def _untrainable(samples: int, settings: Settings, error: Exception) -> UntrainableTail:
    told = config_error(
        "loader.drop_last",
        False,
        f"true, since the last batch of a pass holds {samples} of {settings.batch_size} "
        f"samples and cannot be trained ({failures.explain(error)})",
        todo="Use loader.drop_last=true, or a batch_size that leaves no such rest.",
    )
    return UntrainableTail(str(told))
