"""Intervals and verdicts. Works on plain numbers; knows nothing of torch, trials or devices."""

from autotune.statistics.estimate import (
    LEVEL,
    Estimate,
    geometric_mean_estimate,
    mean_estimate,
    student_t,
)
from autotune.statistics.processes import process_spread
from autotune.statistics.verdict import (
    SAME_WITHIN,
    VERDICT_LEVEL,
    Comparison,
    Verdict,
    compare,
    ratio_estimate,
)
from autotune.statistics.window import (
    SHIFT_LEVEL,
    BlockMean,
    beginning_shift,
    block_means,
    mean_of_blocks,
    rate_estimate,
    rate_of_blocks,
)

__all__ = [
    "LEVEL",
    "SAME_WITHIN",
    "SHIFT_LEVEL",
    "VERDICT_LEVEL",
    "BlockMean",
    "Comparison",
    "Estimate",
    "Verdict",
    "beginning_shift",
    "block_means",
    "compare",
    "geometric_mean_estimate",
    "mean_estimate",
    "mean_of_blocks",
    "process_spread",
    "rate_estimate",
    "rate_of_blocks",
    "ratio_estimate",
    "student_t",
]
