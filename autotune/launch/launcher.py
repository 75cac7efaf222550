"""The contract between the tuner and whatever runs a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autotune.measurement import JobFacts, Outcome, TrialFailure
from autotune.request import TrialRequest

Progress = Callable[[str], None]
"""Called with the stage that a trial has reached: start, setup, warm-up, window, ..."""


class Launcher(Protocol):
    """Runs trials, each in a process (group) of its own that is gone when the call returns."""

    def inspect(self, request: TrialRequest) -> JobFacts | TrialFailure:
        """Look at the job once: device, dataset size, one plain step. Never raises for the job."""
        ...

    def run(self, request: TrialRequest, progress: Progress) -> Outcome:
        """Run one trial to its end or its limit. Never raises for what the trial does.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C; the trial's processes are gone.
        """
        ...

    def close(self) -> None:
        """End everything that the launcher keeps running."""
        ...


__all__ = ["Launcher", "Progress", "TrialRequest"]
