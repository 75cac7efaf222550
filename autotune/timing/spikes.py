"""Steps far above the others: which, how much, and whether they come periodically."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

SPIKE_SCORE = 3.5
"""Modified z-score above which a step is a spike (Iglewicz and Hoaglin 1993, "How to Detect and
Handle Outliers", section 3.3, whose recommendation it is)."""

SPIKE_ERROR = 0.01
"""Chance at which the largest of all steps would be a spike by noise alone. In a run of a few
hundred steps this takes a higher score than 3.5, which was meant for small samples."""

SPIKE_SHARE = 0.1
"""And a spike is at least this share of the median above it: a step of 100.5 ms among steps of
100.0 ms +- 0.1 ms is an outlier, but nothing that anyone needs to look for."""

_MAD_PER_SIGMA = 0.6745
_MEAN_DEVIATION_PER_SIGMA = 0.7979
"""Median and mean absolute deviation of a normal distribution, per standard deviation."""

PERIOD_HITS = 4
"""Spikes that a period needs: two always lie in some period, three often."""

PERIOD_COMPLETE = 0.8
"""Share of a period's steps that must be spikes."""

PERIOD_ERROR = 1e-3
"""Chance, over all periods and offsets looked at, at which spikes placed at random would line up
this well."""

_MOST_PERIODS = 3


@dataclass(frozen=True)
class Spikes:
    """Spikes with something in common.

    Attributes:
        at: Their positions among the steps, from 0, ascending.
        excess_s: How far they lie above the median step: the median over them.
        every: Their period in steps; None if they have none.
        due: Steps at which the period would have had a spike; None without a period.
    """

    at: NDArray[np.intp]
    excess_s: float
    every: int | None = None
    due: int | None = None


def spike_limit(step_s: NDArray[np.float64]) -> float:
    """Return the seconds above which a step is a spike.

    Median + 3.5 sigma, or more in a long run (see `SPIKE_ERROR`). Sigma is taken from the median
    absolute deviation, or where more than half of the steps are equal from the mean absolute
    deviation (Iglewicz and Hoaglin 1993).
    """
    median = float(np.median(step_s))
    deviation = np.abs(step_s - median)
    sigma = float(np.median(deviation)) / _MAD_PER_SIGMA
    if sigma == 0:
        sigma = float(deviation.mean()) / _MEAN_DEVIATION_PER_SIGMA
    score = max(SPIKE_SCORE, NormalDist().inv_cdf(1 - SPIKE_ERROR / len(step_s)))
    return median + max(score * sigma, SPIKE_SHARE * median)


def find_spikes(step_s: NDArray[np.float64]) -> list[Spikes]:
    """Return the spikes: one entry for each period, the strongest first, then one for the rest.

    What a period explains is taken away before the next is looked for; its steps that are spikes
    even among its own keep the rest, so that a rare long one on top of frequent short ones is
    found as well.
    """
    found: list[Spikes] = []
    rest = step_s.copy()
    while True:
        at = np.flatnonzero(rest > spike_limit(rest))
        period = _strongest_period(at, len(rest)) if len(found) < _MOST_PERIODS else None
        if period is None:
            break
        every, offset = period
        due = np.arange(offset, len(rest), every)
        hits = np.intersect1d(at, due)
        usual, excess_s = float(np.median(rest)), _excess(rest, hits)
        found.append(Spikes(hits, excess_s, every, len(due)))
        far = rest[hits] > spike_limit(rest[hits])
        rest[hits] = np.where(far, rest[hits] - excess_s, usual)
    if len(at):
        found.append(Spikes(at, _excess(rest, at)))
    return found


def _excess(step_s: NDArray[np.float64], at: NDArray[np.intp]) -> float:
    return float(np.median(step_s[at]) - np.median(step_s))


def _strongest_period(at: NDArray[np.intp], steps: int) -> tuple[int, int] | None:
    """Return the period and offset that spikes placed at random would show least often.

    Under random placement the hits of one period and offset are hypergeometric; the smallest of
    these tails counts as often as there are periods and offsets to choose from (Bonferroni). Spikes
    in a row count as one: what slows one step often slows the next, and is no sign of a period.
    """
    if len(at) < PERIOD_HITS:
        return None
    from scipy.stats import hypergeom

    starts = at[np.flatnonzero(np.diff(at, prepend=-2) > 1)]
    longest = steps // PERIOD_HITS
    best, least = None, math.log(PERIOD_ERROR) - math.log(max(1.0, longest * (longest + 1) / 2))
    for every in range(2, longest + 1):
        hits = np.bincount(starts % every)
        offset = int(hits.argmax())
        due = (steps - 1 - offset) // every + 1
        if hits[offset] < max(PERIOD_HITS, PERIOD_COMPLETE * due):
            continue
        chance = float(hypergeom.logsf(hits[offset] - 1, steps, due, len(starts)))
        if chance < least:
            best, least = (every, offset), chance
    return best
