"""Reports: a study's outcome in words, numbers and tables. Knows nothing of screens or files."""

from autotune.report.bottleneck import bottleneck
from autotune.report.compiling import compiling
from autotune.report.numerics import numerics
from autotune.report.page import markdown
from autotune.report.phases import PhaseRow, phase_rows, phase_table
from autotune.report.summary import headline

__all__ = [
    "PhaseRow",
    "bottleneck",
    "compiling",
    "headline",
    "markdown",
    "numerics",
    "phase_rows",
    "phase_table",
]
