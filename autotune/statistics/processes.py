"""How much fresh processes of the same settings differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.statistics.estimate import LEVEL, Estimate


def process_spread(
    rates: Sequence[Sequence[float]],
    errors: Sequence[Sequence[float | None]],
    level: float = LEVEL,
) -> Estimate | None:
    """Return the standard deviation of the logarithm of the rate between fresh processes.

    It is pooled over the contestants, each about its own mean, and what the windows' own noise
    explains is taken off: the variance seen is that of the processes plus the mean square of the
    windows' standard errors. The interval is the chi-square interval of the variance seen, less
    the same. A spread of 0.08 means that rates of the same settings differ by 8 %.

    Args:
        rates: Rates of each contestant, one per fresh process, above 0.
        errors: The relative standard error of each rate within its window; None where unknown,
            which takes nothing off.
        level: Coverage of the interval.

    Returns:
        None where no contestant has two rates. The value, and the lower end, is 0 where the
        windows' noise explains all that was seen.
    """
    from scipy.special import chdtri

    logs = [np.log(np.asarray(each, dtype=np.float64)) for each in rates]
    degrees = sum(len(each) - 1 for each in logs if len(each) > 1)
    if degrees == 0:
        return None
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in logs if len(each) > 1)
    own = [error or 0.0 for each in errors if len(each) > 1 for error in each]
    noise = sum(error**2 for error in own) / len(own)

    def without_noise(variance: float) -> float:
        return math.sqrt(max(0.0, variance - noise))

    tail = (1 - level) / 2
    return Estimate(
        without_noise(squares / degrees),
        without_noise(squares / float(chdtri(degrees, tail))),
        without_noise(squares / float(chdtri(degrees, 1 - tail))),
        level,
    )
