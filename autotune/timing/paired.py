"""The verdict on times that were taken in turns, in random order, in one process.

`statistics.compare` judges a few pairs of fresh processes, whose spread it must guess at first.
Here are tens to hundreds of rounds, and within a round chance alone decides who comes first. So if
two candidates are the same, a round's difference is as likely to be +d as -d, whatever the noise is
and however rounds depend on each other: Wilcoxon's signed-rank test is exact then, as a
randomisation test. Its interval (Hollander, Wolfe and Chicken, "Nonparametric Statistical
Methods", 3rd ed., section 3.3) bounds the pseudo-median of the differences, which single disturbed
rounds hardly move.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.statistics import (
    LEVEL,
    SAME_WITHIN,
    VERDICT_LEVEL,
    Comparison,
    Estimate,
    Verdict,
)


def typical(times_s: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the pseudo-median of positive times, on the log scale, with its interval.

    Raises:
        ValueError: There are no times, or one is not above 0.
    """
    if not times_s or min(times_s) <= 0:
        raise ValueError("times must be above 0, and there must be at least one")
    return _exponential(_pseudo_median(np.log(times_s), level))


def speedup(
    candidate_s: Sequence[float], reference_s: Sequence[float], level: float = LEVEL
) -> Estimate:
    """Return how many times faster the candidate is, with its interval.

    Args:
        candidate_s: Seconds per call of the candidate, one per round.
        reference_s: Seconds per call of the reference in the same rounds.
        level: Coverage of the interval.

    Raises:
        ValueError: The two differ in length, are empty, or hold a time that is not above 0.
    """
    if len(candidate_s) != len(reference_s) or min((*candidate_s, *reference_s), default=0) <= 0:
        raise ValueError("pairs of times above 0 needed, at least one")
    return _exponential(_pseudo_median(np.log(reference_s) - np.log(candidate_s), level))


def judge(candidate_s: Sequence[float], reference_s: Sequence[float], chances: int) -> Comparison:
    """Judge a candidate against the reference.

    FASTER or SLOWER needs the interval at `VERDICT_LEVEL` wholly on one side of 1 and the ratio
    itself beyond `SAME_WITHIN`; SAME needs the `LEVEL` interval wholly within `SAME_WITHIN` of 1.

    Args:
        candidate_s: Seconds per call of the candidate, one per round.
        reference_s: Seconds per call of the reference in the same rounds.
        chances: How often a false win could come up: looks while rounds come in, times candidates.
            They share out the error that `VERDICT_LEVEL` leaves (Bonferroni).

    Raises:
        ValueError: As `speedup`.
    """
    shown = speedup(candidate_s, reference_s)
    strict = speedup(candidate_s, reference_s, 1 - (1 - VERDICT_LEVEL) / chances)
    verdict = Verdict.UNSURE
    if strict.low is not None and strict.low > 1 and shown.value > 1 + SAME_WITHIN:
        verdict = Verdict.FASTER
    elif strict.high is not None and strict.high < 1 and shown.value < 1 - SAME_WITHIN:
        verdict = Verdict.SLOWER
    elif (
        shown.low is not None
        and shown.high is not None
        and shown.low > 1 - SAME_WITHIN
        and shown.high < 1 + SAME_WITHIN
    ):
        verdict = Verdict.SAME
    return Comparison(shown, verdict, len(candidate_s))


def _pseudo_median(values: NDArray[np.float64], level: float) -> Estimate:
    """Return the median of all means of two values (Hodges and Lehmann 1963), and its interval.

    The interval's ends are the k-th smallest and largest of these means, k taken from the exact
    distribution of the signed-rank statistic. Without an end where even k = 1 falls short.
    """
    first, second = np.triu_indices(len(values))
    walsh = np.sort((values[first] + values[second]) / 2)
    center = float(np.median(walsh))
    tail = np.cumsum(_signed_rank(len(values)))
    rank = int(np.searchsorted(tail, (1 - level) / 2, side="right"))
    if rank == 0:
        return Estimate(center, level=level)
    return Estimate(center, float(walsh[rank - 1]), float(walsh[-rank]), level)


@functools.lru_cache(maxsize=16)
def _signed_rank(count: int) -> NDArray[np.float64]:
    """Return the chance of each value of the signed-rank statistic of `count` values."""
    chance = np.zeros(count * (count + 1) // 2 + 1)
    chance[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.zeros_like(chance)
        shifted[rank:] = chance[:-rank]
        chance = (chance + shifted) / 2
    return chance


def _exponential(log: Estimate) -> Estimate:
    if log.low is None or log.high is None:
        return Estimate(math.exp(log.value), level=log.level)
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high), log.level)
