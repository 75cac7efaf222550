"""Looks at a job before its search, for what no single trial would show. One check a file.

A check reads a few batches the way trials will, and returns findings. It is bounded in time, and
one that cannot speak (no time left, the data raise) changes nothing.
"""

from autotune.trial.preflight.look import Look
from autotune.trial.preflight.run import run_preflight

__all__ = ["Look", "run_preflight"]
