"""The contract between the tuner and a tracking store."""

from __future__ import annotations

from typing import Protocol

from autotune.environment import Environment
from autotune.result import StudyResult, TrialRecord


class Tracker(Protocol):
    """Logs a study. Called between trials only, never inside a timed window."""

    def start(self, study: str, folder: str, config: str, environment: Environment) -> None:
        """Open the parent run.

        Args:
            study: Name of the study.
            folder: Absolute folder of the study.
            config: The whole configuration as YAML text.
            environment: The machine and versions.

        Raises:
            TrackingError: The store does not answer or cannot be written.
        """
        ...

    def log_trial(self, trial: TrialRecord) -> None:
        """Log a finished trial as a run of its own. A store that went away is noted, not raised."""
        ...

    def finish(self, result: StudyResult, artifacts: tuple[str, ...]) -> None:
        """Log the outcome and close the parent run as finished.

        Args:
            result: The whole study.
            artifacts: Absolute paths of files to attach to the parent run.
        """
        ...

    def abort(self, reason: str, *, killed: bool) -> None:
        """Close every open run as failed, or as killed, with the reason. Safe at any time."""
        ...

    def view(self) -> str | None:
        """Return the exact command that shows the runs, or None where none is needed."""
        ...

    def address(self) -> str | None:
        """Return the address of the runs once the command of `view` runs, or None without one."""
        ...


class NoTracker:
    """Logs nothing (`tracking=none`)."""

    def start(self, study: str, folder: str, config: str, environment: Environment) -> None:
        """Do nothing."""

    def log_trial(self, trial: TrialRecord) -> None:
        """Do nothing."""

    def finish(self, result: StudyResult, artifacts: tuple[str, ...]) -> None:
        """Do nothing."""

    def abort(self, reason: str, *, killed: bool) -> None:
        """Do nothing."""

    def view(self) -> str | None:
        """Return None: there is nothing to show."""
        return None

    def address(self) -> str | None:
        """Return None: there is nothing to show."""
        return None
