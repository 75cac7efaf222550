"""What is kept of finished steps: one number each, in compact columns of bounded length."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FIRST_STEPS = 64
"""Steps from the first whose times are kept apart for good: warm-up is over long before."""


class StepHistory:
    """Times of the latest steps; a phase that did not run in a step is not a number there.

    Between `keep` and twice `keep` steps are held: each time twice as many are there, the older
    half goes, which costs next to nothing a step.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.dropped = 0
        self.first_s: list[float] = []
        self._step_s = array("d")
        self._samples = array("d")
        self._restarted = array("d")
        self._phases: list[array[float]] = []
        self._host: list[array[float]] = []

    def __len__(self) -> int:
        return len(self._step_s)

    def add_phase(self) -> None:
        """Add a phase; it ran in none of the steps so far."""
        for columns in (self._phases, self._host):
            columns.append(array("d", [math.nan]) * len(self))

    def add(
        self,
        step_s: float,
        phases_s: Sequence[float],
        host_s: Sequence[float],
        *,
        samples: int | None,
        restarted: bool,
    ) -> None:
        """Add a finished step.

        Args:
            step_s: Seconds of the step.
            phases_s: Seconds of each phase on the timer's clock, in the order of `add_phase`.
            host_s: The same on the host's clock.
            samples: Samples that the step trained on; None if unknown.
            restarted: A loader was started in this step: it begins an epoch.
        """
        if len(self.first_s) < FIRST_STEPS:
            self.first_s.append(step_s)
        self._step_s.append(step_s)
        self._samples.append(math.nan if samples is None else samples)
        self._restarted.append(restarted)
        for columns, values in ((self._phases, phases_s), (self._host, host_s)):
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        if len(self) >= 2 * self._keep:
            self.dropped += self._keep
            for column in (
                *(self._step_s, self._samples, self._restarted),
                *self._phases,
                *self._host,
            ):
                del column[: self._keep]

    @property
    def phases(self) -> int:
        """Number of phases."""
        return len(self._phases)

    @property
    def step_s(self) -> NDArray[np.float64]:
        """Seconds of each step that is kept, the oldest first."""
        return np.array(self._step_s)

    @property
    def samples(self) -> NDArray[np.float64]:
        """Samples of each step; not a number where unknown."""
        return np.array(self._samples)

    @property
    def restarted(self) -> NDArray[np.bool_]:
        """Whether a loader was started in the step."""
        return np.array(self._restarted) > 0

    def phase_s(self, phase: int) -> NDArray[np.float64]:
        """Seconds of a phase in each step, on the timer's clock."""
        return np.array(self._phases[phase])

    def host_s(self, phase: int) -> NDArray[np.float64]:
        """Seconds of a phase in each step, on the host's clock."""
        return np.array(self._host[phase])
