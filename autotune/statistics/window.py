"""Rate of a window from its step times, whose noise is correlated.

Steps of one window are not independent: waits come in groups, caches warm, a neighbour takes a core
for a second. Three things make the interval honest all the same, in the manner of Skart
(Tafazzoli, Steiger and Wilson 2011, "N-Skart: a nonsequential skewness- and autoregression-adjusted
batch-means procedure", IEEE Trans. Automatic Control 56(2)), but for its skewness adjustment, which
changed no coverage for the better here (`experiments/statistics`):

1. means of blocks of steps take the place of steps (batch means);
2. many blocks are merged to a few, so that slow noise shows as well;
3. what correlation is left between neighbours widens the interval, by fewer degrees of freedom too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.statistics.estimate import LEVEL, Estimate, as_array, student_t

MOST_BLOCKS = 31
"""Blocks above this number are merged: noise that is slower than a block then shows between
neighbours, and a look costs the same however long the window is. Student's factor is 2.04 to 2.13
for the 16 to 31 blocks that are left, instead of 1.96."""

FEWEST_CORRECTED = 5
"""Blocks from which on their correlation is estimated. Of three or four it is noise alone."""

_FEWEST_EFFECTIVE = 3.0
"""Fewest effective blocks, as many as three independent ones. A drift makes neighbours alike
whatever the noise: by this floor, step times that grow by a share d over a window get a half-width
of about 0.9 d, which holds all of them; with a floor of 2 it would be 3.7 d."""

SHIFT_LEVEL = 0.995
"""Level at which the beginning of a window is called different. By simulation a note comes for
nothing in 1 window of 100 at most, but for the heaviest tails (`experiments/statistics`)."""


@dataclass(frozen=True)
class BlockMean:
    """The mean over blocks whose noise may be correlated.

    Attributes:
        mean: The mean, in the blocks' unit.
        standard_error: Its standard error, in the same unit.
        degrees: Degrees of freedom of the standard error: effective blocks less 1.
    """

    mean: float
    standard_error: float
    degrees: float

    def halfwidth(self, level: float = LEVEL) -> float:
        """Return half the width of the mean's interval."""
        return student_t(self.degrees, level) * self.standard_error


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
    return [float(mean) for mean in _split_means(as_array(samples), len(samples) // block)]


def mean_of_blocks(blocks: Sequence[float]) -> BlockMean | None:
    """Return the mean of consecutive block means with an honest standard error.

    The correlation r of neighbours is corrected for its bias, which is -(1 + 3 r) / n when the mean
    is estimated from the same n values (Kendall 1954, "Note on bias in the estimation of
    autocorrelation"); n values that are correlated like an autoregression of first order tell as
    much of their mean as n (1 - r) / (1 + r) independent ones (Bayley and Hammersley 1946).
    Negative correlation is not made use of: of some tens of blocks it is too uncertain, and taking
    it at its word gave 92 % instead of 95 on independent blocks.

    Returns:
        None for fewer than 2 blocks.
    """
    if len(blocks) < 2:
        return None
    values = merged(as_array(blocks))
    count = len(values)
    mean = values.mean()
    apart = values - mean
    squares = float(apart @ apart)
    correlation = 0.0
    if count >= FEWEST_CORRECTED and squares > 0:
        sample = float(apart[1:] @ apart[:-1]) / squares
        correlation = min(max(sample + (1 + 3 * sample) / count, 0.0), 1.0)
    effective = max(count * (1 - correlation) / (1 + correlation), _FEWEST_EFFECTIVE)
    # E[squares] / count is the variance x (1 - 1 / effective); of the mean it is 1 / effective.
    variance = squares / count / (effective - 1)
    return BlockMean(float(mean), math.sqrt(variance), effective - 1)


def merged(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most `MOST_BLOCKS` means of neighbours, halving the number until it fits."""
    count = len(blocks)
    while count > MOST_BLOCKS:
        count //= 2
    return blocks if count == len(blocks) else _split_means(blocks, count)


def rate_of_blocks(
    blocks: Sequence[float], samples_per_step: float, level: float = LEVEL
) -> Estimate | None:
    """Return samples per second with an interval, from block means of the step time in seconds.

    The rate is samples over time, so the interval is that of the mean step time, turned around.

    Returns:
        None where the blocks give no interval: fewer than 2, or so noisy that it has no upper end.
    """
    step = mean_of_blocks(blocks)
    if step is None or (half := step.halfwidth(level)) >= step.mean:
        return None
    return Estimate(
        samples_per_step / step.mean,
        samples_per_step / (step.mean + half),
        samples_per_step / (step.mean - half),
        level,
    )


def rate_estimate(
    step_s: Sequence[float], samples_per_step: float, block: int, level: float = LEVEL
) -> Estimate:
    """Return samples per second from step times, with an interval from block means.

    Args:
        step_s: Seconds of each step.
        samples_per_step: Mean number of samples in a step.
        block: Steps in one block.
        level: Coverage of the interval.

    Raises:
        ValueError: There are no steps.
    """
    rate = samples_per_step / float(as_array(step_s).mean())
    found = rate_of_blocks(block_means(step_s, block), samples_per_step, level)
    if found is None or found.low is None or found.high is None:
        return Estimate(rate, level=level)
    # Blocks differ by a step where some are left over; the value is that of all steps alike.
    scale = rate / found.value
    return Estimate(rate, found.low * scale, found.high * scale, level)


def beginning_shift(blocks: Sequence[float]) -> Estimate | None:
    """Return how much longer steps took in a window's first quarter than in the rest, as a share.

    A difference that is clear at `SHIFT_LEVEL` means that the window began too early: a clock that
    was still rising, a cache that was still filling. It is told, and not cut off: a rule that drops
    the beginning where it looks odd (MSER-5, White 1997) drops the long waits of a bursty job as
    well, and makes it look faster.

    Args:
        blocks: Means of the step time over consecutive blocks.

    Returns:
        None where there are fewer than 8 blocks, or no clear difference.
    """
    if len(blocks) < 8:
        return None
    values = as_array(blocks)
    first, rest = np.split(values, [len(values) // 4])
    base = mean_of_blocks(list(rest))
    if base is None or base.mean <= 0:
        return None
    # The noise is the rest's: blocks of a transient say little of it. A mean over a share q of
    # what the rest holds has 1 / q of its variance.
    error = base.standard_error * math.sqrt(1 + len(rest) / len(first))
    half = student_t(base.degrees, SHIFT_LEVEL) * error
    difference = float(first.mean()) - base.mean
    if abs(difference) <= half:
        return None
    return Estimate(
        difference / base.mean,
        (difference - half) / base.mean,
        (difference + half) / base.mean,
        SHIFT_LEVEL,
    )


def _split_means(values: NDArray[np.float64], parts: int) -> NDArray[np.float64]:
    """Return the means of `parts` neighbouring groups that differ in size by 1 at most."""
    bounds = -(-np.arange(parts) * len(values) // parts)
    sizes = np.diff(np.append(bounds, len(values)))
    means: NDArray[np.float64] = np.add.reduceat(values, bounds) / sizes
    return means
