"""Intervals and verdicts. Works on plain numbers; knows nothing of torch, trials or devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""Level of every interval that is shown to a user."""

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

_LOG_LIMIT = 700.0
"""An interval that reaches beyond the exponential of this says nothing, and would overflow."""


@dataclass(frozen=True)
class Estimate:
    """An estimate with its interval.

    Attributes:
        value: The estimate.
        low: Lower end of the interval; None where there are too few samples for one.
        high: Upper end of the interval; None where there are too few samples for one.
        level: Coverage that the interval aims at.
    """

    value: float
    low: float | None = None
    high: float | None = None
    level: float = LEVEL

    @property
    def relative_halfwidth(self) -> float | None:
        """Half the interval's width as a share of the value, or None without an interval."""
        if self.low is None or self.high is None or self.value == 0:
            return None
        return (self.high - self.low) / 2 / abs(self.value)


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


def student_t(degrees: int, level: float) -> float:
    """Return the two-sided Student t quantile for `degrees` of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))


def mean_estimate(samples: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the mean of independent samples with its Student t interval.

    Raises:
        ValueError: There are no samples.
    """
    values = _array(samples)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean, level=level)
    half = student_t(len(values) - 1, level) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, level)


def geometric_mean_estimate(samples: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the geometric mean of independent positive samples with its interval.

    The interval is that of the mean of the logarithms, so it never reaches below 0, and means of
    paired rates have exactly the ratio that `ratio_estimate` gives.

    Raises:
        ValueError: There are no samples, or one is not above 0.
    """
    if min(samples, default=1.0) <= 0:
        raise ValueError(f"samples must be above 0, got {min(samples)}")
    log = mean_estimate([math.log(sample) for sample in samples], level)
    if log.low is None or log.high is None or log.high > _LOG_LIMIT:
        return Estimate(math.exp(log.value), level=level)
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high), level)


def block_means(samples: Sequence[float], block: int) -> list[float]:
    """Return means of consecutive blocks of about `block` samples, which together hold all samples.

    Steps of one window are correlated (workers finish together, caches warm); means of blocks that
    span a whole turn of the worker pool are close to independent (method of batch means; Law,
    "Simulation Modeling and Analysis", 5th ed., section 9.5.3).

    Raises:
        ValueError: `block` is below 1.
    """
    if block < 1:
        raise ValueError(f"block must be 1 or more, got {block}")
    if len(samples) < block:
        return []
    # What is left over is spread over the blocks: left out, an interval could miss its own value.
    parts = np.array_split(_array(samples), len(samples) // block)
    return [float(part.mean()) for part in parts]


def rate_estimate(
    step_s: Sequence[float], samples_per_step: float, block: int, level: float = LEVEL
) -> Estimate:
    """Return samples per second from step times, with an interval from block means.

    The rate is samples over time, so the interval is that of the mean step time, turned around.

    Args:
        step_s: Seconds of each step.
        samples_per_step: Mean number of samples in a step.
        block: Steps in one block.
        level: Coverage of the interval.

    Raises:
        ValueError: There are no steps.
    """
    rate = samples_per_step / float(_array(step_s).mean())
    blocks = block_means(step_s, block)
    if len(blocks) < 2:
        return Estimate(rate, level=level)
    mean = mean_estimate(blocks, level)
    if mean.low is None or mean.high is None:
        return Estimate(rate, level=level)
    if mean.low <= 0:  # too noisy: as a rate, such an interval has no upper end
        return Estimate(rate, level=level)
    return Estimate(rate, samples_per_step / mean.high, samples_per_step / mean.low, level)


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
    return geometric_mean_estimate(list(_array(candidate) / _array(baseline)), level)


def compare(candidate: Sequence[float], baseline: Sequence[float], *, looks: int = 1) -> Comparison:
    """Judge paired rates of a candidate and a baseline.

    FASTER or SLOWER needs an interval of the ratio at `VERDICT_LEVEL` wholly on one side of 1 and
    the ratio itself beyond `SAME_WITHIN`; SAME needs the `LEVEL` interval wholly within
    `SAME_WITHIN` of 1. All else is UNSURE.

    With three pairs, Student's interval at such a level is 20 standard errors wide, since three
    pairs tell little of their own spread: not even a gain of 15 x would be clear. So the verdict
    has a second way, the moderated t statistic (Smyth 2004, "Linear models and empirical Bayes
    methods", section 3), whose spread is that of the pairs averaged with `PRIOR_SPREAD`. Each way
    gets half of the error.

    Args:
        candidate: Rates of the candidate, one per fresh process.
        baseline: Rates of the baseline in the same pairs.
        looks: How often the pairs may be judged while they come in. The error that `VERDICT_LEVEL`
            leaves is shared out equally among the looks (Bonferroni).

    Raises:
        ValueError: As `ratio_estimate`.
    """
    shown = ratio_estimate(candidate, baseline)
    logs = np.log(_array(candidate)) - np.log(_array(baseline))
    surely = abs(float(logs.mean())) > _verdict_halfwidth(logs, looks)
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
    return min(
        student_t(pairs - 1, level) * math.sqrt(own / pairs),
        student_t(degrees, level) * math.sqrt(moderated / pairs),
    )


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


def _array(samples: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples")
    return values
