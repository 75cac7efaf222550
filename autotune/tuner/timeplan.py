"""Arithmetic of the budget: what a trial may take so that a winner can still be confirmed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.measurement import StopReason
from autotune.result import TrialRecord

_MARGIN = 1.1
"""The confirmation is given a tenth more than its trials took in the search: a confirmation that
runs out of time in its last round has no verdict."""


@dataclass(frozen=True)
class TimePlan:
    """How the seconds until the deadline are shared out.

    Attributes:
        deadline_s: When everything must have ended, on the tuner's clock.
        rounds: Rounds that the confirmation takes at least.
        limit_s: Wall-clock limit of any trial.
        window_s: Time cap of a trial's window.
    """

    deadline_s: float
    rounds: int
    limit_s: float
    window_s: float

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the deadline."""
        return self.deadline_s - now_s

    def hard_limit_s(self, now_s: float) -> float:
        """Return what a trial may take at most, with no thought of what comes after it."""
        return min(self.limit_s, self.left_s(now_s))

    def cost_s(self, record: TrialRecord) -> float:
        """Return the seconds of a trial when it is run to its end."""
        measurement = record.measurement
        if measurement is None or measurement.window.stop is not StopReason.OUTRACED:
            return record.total_s
        return record.total_s + max(0.0, self.window_s - measurement.window.elapsed_s)

    def typical_s(self, records: Iterable[TrialRecord]) -> float:
        """Return the seconds that a trial is expected to take, from those before it."""
        return statistics.median(self.cost_s(record) for record in records)

    def confirmation_s(self, arms: Iterable[TrialRecord]) -> float:
        """Return the seconds to keep for a confirmation of these contestants."""
        return _MARGIN * self.rounds * sum(self.cost_s(record) for record in arms)

    def trial_limit_s(
        self, now_s: float, yardsticks: Sequence[TrialRecord], best: TrialRecord | None
    ) -> float:
        """Return what a search trial may take so that a confirmation still fits after it.

        Whether the trial becomes the best, which then takes as long in each round, or not.

        Args:
            now_s: The time.
            yardsticks: Contestants beside the best.
            best: The best trial so far; None when it is one of the yardsticks.
        """
        left_s = self.left_s(now_s)
        others = list(yardsticks) if best is None else [*yardsticks, best]
        as_winner = (left_s - self.confirmation_s(yardsticks)) / (1 + _MARGIN * self.rounds)
        as_loser = left_s - self.confirmation_s(others)
        return min(self.limit_s, as_winner, as_loser)

    def least_s(self, baseline_s: float) -> float:
        """Return the least that a study takes: two settings measured once and then confirmed.

        Args:
            baseline_s: Seconds of a trial of the baseline; the other is taken to need as long.
        """
        return 2 * baseline_s * (1 + _MARGIN * self.rounds)


def as_minutes(seconds: float) -> float:
    """Return seconds as a number of minutes to ask a user for, in halves, rounded up."""
    return max(0.5, math.ceil(seconds / 30) / 2)
