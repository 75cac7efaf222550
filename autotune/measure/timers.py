"""Phase timers: where in a step the time goes, without a synchronisation inside a window."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import torch

from autotune.measurement import Phase


class Mark(IntEnum):
    """A boundary within a step, in the order in which a step passes them.

    A step begins where the one before it ended, so its phases fill it without a gap.
    """

    FETCHED = 0
    """`next(loader)` has returned."""
    COPIED = 1
    """The batch's copy to the device is queued: end of the data phase."""
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    """End of the step."""


_PHASE_ENDS = {
    Phase.DATA: Mark.COPIED,
    Phase.FORWARD: Mark.FORWARD,
    Phase.BACKWARD: Mark.BACKWARD,
    Phase.OPTIMIZER: Mark.OPTIMIZER,
}


@dataclass(frozen=True)
class StepTimes:
    """Seconds per step of one window.

    Attributes:
        step_s: Whole steps.
        phase_s: Phases; they add up to `step_s`.
        stall_s: From the end of a step to the arrival of the next batch, on the timer's clock. On a
            device this is real idling: the boundary before it cannot pass until the step's work is
            done, so a wait that hides behind queued work counts as nothing.
    """

    step_s: tuple[float, ...]
    phase_s: Mapping[Phase, tuple[float, ...]]
    stall_s: tuple[float, ...]


class PhaseTimer(Protocol):
    """Records boundaries. `mark` must cost microseconds and never wait for the device."""

    def begin(self) -> None:
        """Record the beginning of the first step."""
        ...

    def mark(self, mark: Mark) -> None:
        """Record a boundary of the current step. All marks of a step come, in their order."""
        ...

    def finished_steps(self) -> Sequence[float]:
        """Return seconds of the steps known to be finished, without waiting for the others."""
        ...

    def read(self) -> StepTimes:
        """Return all steps. Only valid after a synchronisation that follows the last mark."""
        ...


class HostTimer:
    """Boundaries on the host's clock: exact on a CPU, where work is done when a call returns."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._start = 0.0
        self._marks: list[float] = []
        self._finished: list[float] = []

    def begin(self) -> None:
        """Record the beginning of the first step."""
        self._start = self._clock()

    def mark(self, mark: Mark) -> None:
        """Record a boundary."""
        self._marks.append(self._clock())

    def finished_steps(self) -> Sequence[float]:
        """Return seconds of all complete steps."""
        width = len(Mark)
        for end in range((len(self._finished) + 1) * width, len(self._marks) + 1, width):
            before = self._marks[end - width - 1] if end > width else self._start
            self._finished.append(self._marks[end - 1] - before)
        return self._finished

    def read(self) -> StepTimes:
        """Return all steps."""
        times = [self._start, *self._marks]
        return _step_times(len(self._marks), lambda before, after: times[after] - times[before])


class EventTimer:
    """Boundaries as events in the device's queue (CUDA, ROCm, XPU), read after the window."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.Event] = []
        self._finished: list[float] = []

    def begin(self) -> None:
        """Record the beginning of the first step."""
        self._record()

    def mark(self, mark: Mark) -> None:
        """Record a boundary."""
        self._record()

    def finished_steps(self) -> Sequence[float]:
        """Return seconds of the steps whose last event the device has passed."""
        width = len(Mark)
        while True:
            first = len(self._finished) * width
            if first + width >= len(self._events) or not self._events[first + width].query():
                return self._finished
            self._finished.append(self._between(first, first + width))

    def read(self) -> StepTimes:
        """Return all steps."""
        return _step_times(len(self._events) - 1, self._between)

    def _record(self) -> None:
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        self._events.append(event)

    def _between(self, first: int, second: int) -> float:
        milliseconds: float = self._events[first].elapsed_time(self._events[second])
        return milliseconds / 1e3


class LabelTimer:
    """Names the phases in a profiler trace instead of timing them."""

    def __init__(self) -> None:
        self._open: AbstractContextManager[object] | None = None

    def begin(self) -> None:
        """Open the first phase."""
        self._enter(Phase.DATA)

    def mark(self, mark: Mark) -> None:
        """Close the phase that ends here and open the next."""
        if mark is Mark.FETCHED:
            return
        self.end()
        phases = list(Phase)
        self._enter(phases[mark % len(phases)])

    def finished_steps(self) -> Sequence[float]:
        """Return nothing: labels are not timed."""
        return []

    def read(self) -> StepTimes:
        """Return nothing: labels are not timed."""
        return StepTimes((), dict.fromkeys(Phase, ()), ())

    def end(self) -> None:
        """Close the open phase."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None

    def _enter(self, phase: Phase) -> None:
        label: AbstractContextManager[object] = torch.profiler.record_function(f"autotune::{phase}")
        label.__enter__()
        self._open = label


def make_timer(device: torch.device) -> PhaseTimer:
    """Return the timer that suits a device."""
    return HostTimer() if device.type == "cpu" else EventTimer(device)


def _step_times(marks: int, between: Callable[[int, int], float]) -> StepTimes:
    """Split boundaries into steps and phases.

    Args:
        marks: Boundaries after the first; a multiple of the marks in a step.
        between: Seconds between two boundaries, by their numbers from 0.
    """
    width = len(Mark)
    if marks % width:
        raise ValueError(f"{marks} marks are not whole steps of {width}")
    starts = range(0, marks, width)
    phase_s: dict[Phase, tuple[float, ...]] = {}
    begin = 0
    for phase, end in _PHASE_ENDS.items():
        phase_s[phase] = tuple(between(at + begin, at + end + 1) for at in starts)
        begin = end + 1
    return StepTimes(
        step_s=tuple(between(at, at + width) for at in starts),
        phase_s=phase_s,
        stall_s=tuple(between(at, at + Mark.FETCHED + 1) for at in starts),
    )
