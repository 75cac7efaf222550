"""Points in time, taken without waiting: events in the device's queue, or the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from autotune.errors import TimingError

Point = TypeVar("Point")


class Clock(Protocol[Point]):
    """Takes points in time and tells the seconds between them."""

    def mark(self) -> Point:
        """Take a point in time. Costs microseconds and never waits."""
        ...

    def passed(self, point: Point) -> bool:
        """Return whether the point has been reached, without waiting for it."""
        ...

    def wait(self, point: Point) -> None:
        """Wait until the point has been reached."""
        ...

    def seconds(self, first: Point, second: Point) -> float:
        """Return the seconds between two points that have been reached."""
        ...

    def release(self, point: Point) -> None:
        """Take back a point that nobody will ask about again."""
        ...


class HostClock:
    """The host's clock: exact on a CPU, where work is done when a call returns."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now

    def mark(self) -> float:
        """Take a point in time."""
        return self._now()

    def passed(self, point: float) -> bool:
        """Return True: what is marked has been."""
        return True

    def wait(self, point: float) -> None:
        """Return at once."""

    def seconds(self, first: float, second: float) -> float:
        """Return the seconds between two points."""
        return second - first

    def release(self, point: float) -> None:
        """Forget the point."""


class DeviceClock:
    """Events in the current stream (CUDA, ROCm, XPU), taken from a pool and given back to it.

    The device passes an event when all work queued before it in its stream is done, so the time
    between two events is the device's, its idling included; about 0.5 us of resolution (CUDA
    Runtime API, cudaEventElapsedTime).
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[torch.Event] = []

    def mark(self) -> torch.Event:
        """Record an event in the device's current stream.

        Raises:
            TimingError: A CUDA graph is being captured: the work queued now runs at replay only.
        """
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise TimingError(
                "nothing can be timed inside the capture of a CUDA graph, since what is captured "
                "does not run yet. Put the phase around graph.replay()."
            )
        event = self._free.pop() if self._free else torch.Event(self._device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self._device))
        return event

    def passed(self, point: torch.Event) -> bool:
        """Return whether the device has passed the event."""
        return point.query()

    def wait(self, point: torch.Event) -> None:
        """Wait for this one event, not for the device."""
        point.synchronize()

    def seconds(self, first: torch.Event, second: torch.Event) -> float:
        """Return the seconds between two events that the device has passed."""
        milliseconds: float = first.elapsed_time(second)
        return milliseconds / 1e3

    def release(self, point: torch.Event) -> None:
        """Put the event back into the pool."""
        self._free.append(point)
