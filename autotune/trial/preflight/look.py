"""What a check gets to look at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.loader import build_loader
from autotune.request import PreflightScope
from autotune.settings import Settings
from autotune.workloads.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Look:
    """A job, and what of it matters.

    Attributes:
        workload: The job.
        scope: What the study may try.
        device: Where it trains.
        seed: Seed of order and weights.
        seconds_per_sample: Seconds of a plain step per sample.
        clock: Seconds.
    """

    workload: Workload
    scope: PreflightScope
    device: torch.device
    seed: int
    seconds_per_sample: float
    clock: Callable[[], float] = time.monotonic

    @property
    def is_stream(self) -> bool:
        """Whether the data is a stream, without random access."""
        return isinstance(self.workload.dataset, IterableDataset)

    @property
    def samples(self) -> int | None:
        """Samples of the data; None for a stream."""
        return None if self.is_stream else len(self.workload.dataset)  # type: ignore[arg-type]

    def loader(
        self, batch_size: int, *, workers: int = 0, dataset: Dataset[Any] | None = None
    ) -> DataLoader[Any]:
        """Return the loader of a trial, in the order of the data and with the last batch kept.

        Args:
            batch_size: Samples in a batch.
            workers: Number of workers.
            dataset: Read this instead of all.
        """
        data = self.workload.dataset if dataset is None else dataset
        plain = replace(self.workload, dataset=data, shuffle=False, drop_last=False)
        return build_loader(
            plain, Settings(batch_size=batch_size, num_workers=workers), seed=self.seed
        )


class CannotTell(Exception):  # noqa: N818 - names what it is
    """A check cannot speak of this job; its text says why."""
