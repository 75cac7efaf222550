"""Arithmetic of the budget: what a trial may take so that a winner can still be confirmed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.measurement import StopReason
from autotune.result import TrialRecord

_MARGIN = 1.1
"""The confirmation is given a tenth more than its trials are expected to take: a confirmation that
runs out of time in its last round has no verdict."""

_WARM_FIRST_STEP = 0.3
"""Share of the first step's seconds that it takes again once caches are warm. Seen on an H200 with
ResNet-50: 37 s to 5.4 s with compile (0.15), 9.8 s to 2.9 s with cuDNN's search (0.30)."""

_REPEAT = 0.7
"""Share of a trial's seconds that it takes again in the confirmation, for one not measured yet: no
ceiling, no trace, a warm first step. Seen there: 28 s to 20 s, and 65 s to 33 s with compile."""


@dataclass(frozen=True)
class TimePlan:
    """How the seconds until the deadline are shared out.

    Attributes:
        deadline_s: When everything must have ended, on the tuner's clock.
        rounds: Rounds that the confirmation takes at least.
        limit_s: Wall-clock limit of any trial.
        window_s: Time cap of a trial's window.
        rel_halfwidth: Target of the confirmation's windows, as a share of the throughput.
    """

    deadline_s: float
    rounds: int
    limit_s: float
    window_s: float
    rel_halfwidth: float

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the deadline."""
        return self.deadline_s - now_s

    def hard_limit_s(self, now_s: float) -> float:
        """Return what a trial may take at most, with no thought of what comes after it."""
        return min(self.limit_s, self.left_s(now_s))

    def cost_s(self, record: TrialRecord) -> float:
        """Return the seconds of a trial when it is run to its end, once.

        A window that was measured again, on a disturbed machine, is not expected to be each time.
        """
        measurement = record.measurement
        if measurement is None:
            return record.total_s
        window, spent_s = measurement.window, measurement.costs.window_s
        once_s = record.total_s
        if measurement.repeated_windows and spent_s is not None:
            once_s -= max(0.0, spent_s - window.elapsed_s)
        if window.stop is not StopReason.OUTRACED:
            return once_s
        return once_s + max(0.0, self.window_s - window.elapsed_s)

    def typical_s(self, records: Iterable[TrialRecord]) -> float:
        """Return the seconds that a trial is expected to take, from those before it."""
        return statistics.median(self.cost_s(record) for record in records)

    def repeat_s(self, record: TrialRecord) -> float:
        """Return the seconds that a trial takes again in the confirmation."""
        costs = record.outcome.costs
        extras = (costs.ceiling_s, costs.profile_s, costs.loader_ceiling_s, costs.guard_s)
        once = sum(seconds or 0.0 for seconds in extras)
        warm = (1 - _WARM_FIRST_STEP) * (costs.first_step_s or 0.0)
        return self.cost_s(record) + self._sharper_s(record) - once - warm

    def _sharper_s(self, record: TrialRecord) -> float:
        """Return the further seconds that a window needs for the confirmation's target.

        Only one that met the search's target ended before its time; the square of the half-width
        falls as the time grows.
        """
        measurement = record.measurement
        if measurement is None or measurement.window.stop is not StopReason.CONVERGED:
            return 0.0
        seen, took_s = (
            measurement.window.throughput.relative_halfwidth,
            measurement.window.elapsed_s,
        )
        if seen is None or seen <= self.rel_halfwidth:
            return 0.0
        return max(0.0, min(self.window_s, took_s * (seen / self.rel_halfwidth) ** 2) - took_s)

    def confirmation_s(self, arms: Iterable[TrialRecord]) -> float:
        """Return the seconds to keep for a confirmation of these contestants."""
        return _MARGIN * self.rounds * sum(self.repeat_s(record) for record in arms)

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
        for_winner_s = left_s - self.confirmation_s(yardsticks)
        as_winner = for_winner_s / (1 + _REPEAT * _MARGIN * self.rounds)
        as_loser = left_s - self.confirmation_s(others)
        return min(self.limit_s, as_winner, as_loser)

    def least_s(self, baseline_s: float) -> float:
        """Return the least that a study takes: two settings measured once and then confirmed.

        Args:
            baseline_s: Seconds of a trial of the baseline; the other is taken to need as long.
        """
        return 2 * baseline_s * (1 + _MARGIN * self.rounds)  # a first trial's caches are cold


def as_minutes(seconds: float) -> float:
    """Return seconds as a number of minutes to ask a user for, in halves, rounded up."""
    return max(0.5, math.ceil(seconds / 30) / 2)
