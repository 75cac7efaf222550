"""Timing for users' own code: phases of a training loop, and callables against each other."""

from autotune.timing.comparison import compare
from autotune.timing.report import PhaseTimes, StepReport
from autotune.timing.steps import StepTimer
from autotune.timing.verdicts import CandidateTimes, CompareResult

__all__ = [
    "CandidateTimes",
    "CompareResult",
    "PhaseTimes",
    "StepReport",
    "StepTimer",
    "compare",
]
