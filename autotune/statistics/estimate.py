"""Estimates with their intervals, from independent samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""Level of every interval that is shown to a user."""

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


def student_t(degrees: float, level: float) -> float:
    """Return the two-sided Student t quantile for `degrees` of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))


def mean_estimate(samples: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the mean of independent samples with its Student t interval.

    Raises:
        ValueError: There are no samples.
    """
    values = as_array(samples)
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


def as_array(samples: Sequence[float]) -> NDArray[np.float64]:
    """Return samples as an array.

    Raises:
        ValueError: There are no samples.
    """
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples")
    return values
