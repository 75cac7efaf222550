"""How much fresh processes of the same settings differ, in words."""

from __future__ import annotations

from autotune.report import numbers
from autotune.statistics import Estimate


def process_sentence(spread: Estimate | None) -> str:
    """Return one sentence on the spread between fresh processes, or nothing where it is unknown.

    Args:
        spread: Standard deviation of the logarithm of the rate: 0.08 is 8 %.
    """
    if spread is None:
        return ""
    words = "Fresh processes of the same settings differ by"
    if spread.low is None or spread.high is None:
        return f"{words} {numbers.share(spread.value)} (standard deviation)."
    if spread.value == 0:
        return f"{words} {numbers.share(spread.high)} at most (standard deviation)."
    low = numbers.share(spread.low).removesuffix(" %")
    return (
        f"{words} {numbers.share(spread.value)} ({low} to {numbers.share(spread.high)}, "
        "standard deviation)."
    )
