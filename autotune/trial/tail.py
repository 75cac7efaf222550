"""The last, partial batch of a pass, which a short window seldom meets and a real run always does.

A single sample breaks batch normalisation ("Expected more than 1 value per channel when training"),
and a new shape may need memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterableDataset

from autotune.errors import config_error
from autotune.settings import CompileMode, Settings
from autotune.trial import failures
from autotune.trial.out_of_memory import is_out_of_memory
from autotune.workloads.workload import Workload


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


def train_tail(
    step: Callable[[], Any], samples: int, settings: Settings, device: torch.device
) -> None:
    """Train one step on the tail batch.

    cuDNN's search is off meanwhile: it takes seconds for a new shape.

    Args:
        step: Trains it, and waits for the device.
        samples: Samples in it.
        settings: What it is trained with.
        device: Where.

    Raises:
        ConfigError: It cannot be trained. Lack of memory comes out as it is.
    """
    searching = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        step()
    except Exception as error:
        if is_out_of_memory(error, device):
            raise
        raise config_error(
            "loader.drop_last",
            False,
            f"true, since the last batch of a pass holds {samples} of {settings.batch_size} "
            f"samples and cannot be trained ({failures.explain(error)})",
            todo="Use loader.drop_last=true, or a batch_size that leaves no such rest.",
        ) from error
    finally:
        torch.backends.cudnn.benchmark = searching
