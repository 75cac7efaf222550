"""What the parts of a probe share: the order, the device, the clock, and what is written down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from autotune.measure.device import synchronize
from autotune.measure.timers import make_timer
from autotune.measurement import Costs
from autotune.request import TrialRequest
from autotune.trial.job import TrainingJob

Stage = Callable[[str], None]


class Bench:
    """One trial's workbench.

    Attributes:
        request: What to measure.
        device: Where.
        notes: What a reader of the record should know, in words.

    Args:
        request: What to measure.
        device: Where.
        start_s: Seconds from the request to a process with its device ready.
        stage: Told what the trial is doing.
    """

    def __init__(
        self, request: TrialRequest, device: torch.device, start_s: float, stage: Stage
    ) -> None:
        self.request = request
        self.device = device
        self.notes: list[str] = []
        self._stage = stage
        self._seconds: dict[str, float] = {"start_s": start_s}
        self._began_s = time.perf_counter() - start_s

    @property
    def costs(self) -> Costs:
        """Seconds by part so far."""
        return Costs(**self._seconds)

    @property
    def left_s(self) -> float:
        """Seconds until the trial's limit, at which it is killed."""
        return self.request.limit_s - (time.perf_counter() - self._began_s)

    @contextmanager
    def part(self, cost: str, stage: str | None = None) -> Iterator[None]:
        """Count the seconds of what is done inside.

        Args:
            cost: Field of `Costs`; seconds of several parts of the same name add up.
            stage: What the trial is doing, for whoever watches; None: part of the stage before.
        """
        if stage is not None:
            self._stage(stage)
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self._seconds[cost] = self._seconds.get(cost, 0.0) + spent

    def note(self, text: str | None) -> None:
        """Write down a note, if there is one."""
        if text is not None:
            self.notes.append(text)

    def synchronize(self) -> None:
        """Wait for the device."""
        synchronize(self.device)

    def one_step(self, job: TrainingJob, batches: Iterator[Any]) -> float:
        """Train one step, wait for it and return its seconds."""
        timer = make_timer(self.device)
        started = time.perf_counter()
        timer.begin()
        job.step(batches, timer)
        self.synchronize()
        return time.perf_counter() - started
