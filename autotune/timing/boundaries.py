"""The boundaries of one step, as they are passed; numbers only once the step is over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autotune.errors import WorkloadError
from autotune.workloads.batch import batch_size_of


class StepBoundaries:
    """Points in time of one step; used again for a later one.

    Attributes:
        marks: On the device's clock, the beginning first; the end is the next step's first.
        host: On the host's clock, the end included once it is known.
        codes: What happens at each boundary after the first: a phase's number where it begins, the
            number's complement (below 0) where it ends.
        end: The end on the device's clock.
        samples: Samples seen so far; None if unknown.
        restarted: A loader was started in this step.
        measured: False for the very first step, which begins with what is first in it: it counts
            only if there is something.
    """

    __slots__ = ("codes", "end", "host", "marks", "measured", "restarted", "samples")

    def __init__(self) -> None:
        self.marks: list[Any] = []
        self.host: list[float] = []
        self.codes: list[int] = []
        self.end: Any = None
        self.samples: int | None = None
        self.restarted = False
        self.measured = True

    def start(self, mark: Any, host: float) -> None:
        """Begin at a boundary."""
        self.marks.append(mark)
        self.host.append(host)
        self.samples = None
        self.restarted = False
        self.measured = True

    def add_samples(self, batch: object) -> None:
        """Count the samples of a batch that arrived; several of them are accumulated."""
        try:
            self.samples = (self.samples or 0) + batch_size_of(batch)
        except WorkloadError:
            return  # no tensor in it: the number stays unknown

    def totals(self, paths: int, between: Callable[[int, int], float]) -> list[float]:
        """Return the seconds of each path; not a number for one that did not run."""
        total = [math.nan] * paths
        begun: list[int] = []
        for position, code in enumerate(self.codes, start=1):
            if code >= 0:
                begun.append(position)
                continue
            seconds = between(begun.pop(), position)
            total[~code] = seconds if math.isnan(total[~code]) else total[~code] + seconds
        return total
