"""The contract between the tuner and whatever runs a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autotune.measurement import JobFacts, Measurement, Outcome, TrialFailure
from autotune.request import TrialRequest

Progress = Callable[[str], None]
"""Called with the stage that a trial has reached: start, setup, warm-up, window, ..."""


class ScoredInterrupt(KeyboardInterrupt):  # noqa: N818 - an interrupt, as its base
    """Ctrl-C came when a trial's score stood already.

    Attributes:
        measurement: What was measured by then.
    """

    def __init__(self, measurement: Measurement) -> None:
        super().__init__()
        self.measurement = measurement


class Launcher(Protocol):
    """Runs trials, each in a process (group) of its own that is gone when the call returns."""

    def inspect(self, request: TrialRequest) -> JobFacts | TrialFailure:
        """Look at the job once: device, dataset size, one plain step. Never raises for the job."""
        ...

    def run(self, request: TrialRequest, progress: Progress) -> Outcome:
        """Run one trial to its end or its limit. Never raises for what the trial does.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C; the trial's processes are gone.
            ScoredInterrupt: The same, once the trial had its score.
        """
        ...

    def close(self) -> None:
        """End everything that the launcher keeps running."""
        ...


__all__ = ["Launcher", "Progress", "ScoredInterrupt", "TrialRequest"]
