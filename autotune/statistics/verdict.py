"""The verdict on paired rates: faster, slower, the same, or not sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autotune.statistics.estimate import (
    LEVEL,
    Estimate,
    as_array,
    geometric_mean_estimate,
    student_t,
)

VERDICT_LEVEL = 0.99
"""Level at which a verdict is given, over all looks at the pairs together: each look while they
come in is another chance of a false win."""

SAME_WITHIN = 0.02
"""Two rates whose ratio surely lies within this share of 1 are called the same (DESIGN: a number
can be trusted to 2-3 %)."""

PRIOR_SPREAD = 0.2
"""Standard deviation expected of the logarithm of a pair's ratio on a noisy machine. Seen: 0.02 on
a quiet CPU, 0.1 to 0.3 on a virtual machine with an H200, where one process in a few ran a third
slower than the others throughout. Taken near the upper end: a verdict may be late, not wrong."""

PRIOR_DEGREES = 4
"""Degrees of freedom that `PRIOR_SPREAD` counts for: as much as five pairs of evidence."""

PRIOR_HOLDS_UP_TO = 2.0
"""Multiple of `PRIOR_SPREAD` up to which pairs may spread for the prior to count: with three pairs,
a machine as the prior has it goes beyond that in 2 of 100 confirmations."""


class Verdict(StrEnum):
    """What can be said of a candidate against the baseline."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNSURE = "UNSURE"


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline.

    Attributes:
        ratio: Candidate's rate over baseline's rate, with its interval.
        verdict: The three-valued answer, or UNSURE.
        pairs: Number of interleaved pairs behind it.
    """

    ratio: Estimate
    verdict: Verdict
    pairs: int


def ratio_estimate(
    candidate: Sequence[float], baseline: Sequence[float], level: float = LEVEL
) -> Estimate:
    """Return the geometric mean of the ratios of paired rates, with its interval.

    A pair is two fresh processes measured one after the other; the process is the unit of
    replication, not the step.

    Raises:
        ValueError: The two differ in length, are empty, or hold a rate that is not above 0.
    """
    if len(candidate) != len(baseline):
        raise ValueError(f"pairs needed, got {len(candidate)} and {len(baseline)} rates")
    if min((*candidate, *baseline), default=0.0) <= 0:
        raise ValueError("rates must be above 0, and there must be at least one pair")
    return geometric_mean_estimate(list(as_array(candidate) / as_array(baseline)), level)


def compare(candidate: Sequence[float], baseline: Sequence[float], *, looks: int = 1) -> Comparison:
    """Judge paired rates of a candidate and a baseline.

    FASTER or SLOWER needs an interval of the ratio at `VERDICT_LEVEL` wholly on one side of 1 and
    the ratio itself beyond `SAME_WITHIN`; SAME needs the `LEVEL` interval wholly within
    `SAME_WITHIN` of 1. All else is UNSURE.

    With three pairs, Student's interval at such a level is 20 standard errors wide, since three
    pairs tell little of their own spread: not even a gain of 15 x would be clear. So the verdict
    has a second way, the moderated t statistic (Smyth 2004, "Linear models and empirical Bayes
    methods", section 3), whose spread is that of the pairs averaged with `PRIOR_SPREAD`. Each way
    gets half of the error. The second is closed to pairs that spread `PRIOR_HOLDS_UP_TO` times as
    much: such a machine is not the one that the prior is of. And neither says what the interval
    that is shown does not say as well.

    Args:
        candidate: Rates of the candidate, one per fresh process.
        baseline: Rates of the baseline in the same pairs.
        looks: How often the pairs may be judged while they come in. The error that `VERDICT_LEVEL`
            leaves is shared out equally among the looks (Bonferroni).

    Raises:
        ValueError: As `ratio_estimate`.
    """
    shown = ratio_estimate(candidate, baseline)
    logs = np.log(as_array(candidate)) - np.log(as_array(baseline))
    surely = abs(float(logs.mean())) > _verdict_halfwidth(logs, looks) and not _holds_one(shown)
    return Comparison(shown, _verdict(shown, surely), len(candidate))


def _verdict_halfwidth(logs: NDArray[np.float64], looks: int) -> float:
    """Return the half-width of the narrower of the two intervals at `VERDICT_LEVEL`.

    Args:
        logs: Logarithms of the pairs' ratios.
        looks: How often they may be judged.
    """
    pairs = len(logs)
    if pairs < 2:
        return math.inf
    level = 1 - (1 - VERDICT_LEVEL) / looks / 2
    own = float(logs.var(ddof=1))
    degrees = PRIOR_DEGREES + pairs - 1
    moderated = (PRIOR_DEGREES * PRIOR_SPREAD**2 + (pairs - 1) * own) / degrees
    by_pairs_alone = student_t(pairs - 1, level) * math.sqrt(own / pairs)
    if own > (PRIOR_HOLDS_UP_TO * PRIOR_SPREAD) ** 2:
        return by_pairs_alone
    return min(by_pairs_alone, student_t(degrees, level) * math.sqrt(moderated / pairs))


def _holds_one(ratio: Estimate) -> bool:
    return ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high


def _verdict(shown: Estimate, surely: bool) -> Verdict:
    if surely and shown.value > 1 + SAME_WITHIN:
        return Verdict.FASTER
    if surely and shown.value < 1 - SAME_WITHIN:
        return Verdict.SLOWER
    if shown.low is None or shown.high is None:
        return Verdict.UNSURE
    if shown.low > 1 - SAME_WITHIN and shown.high < 1 + SAME_WITHIN:
        return Verdict.SAME
    return Verdict.UNSURE
