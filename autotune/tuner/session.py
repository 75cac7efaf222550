"""What the parts of one run of a study share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autotune.tuner.ledger import Ledger
from autotune.tuner.observer import Observer
from autotune.tuner.runner import TrialRunner
from autotune.tuner.timeplan import TimePlan


@dataclass(frozen=True, kw_only=True)
class Session:
    """One run of a study.

    Attributes:
        ledger: What is known.
        runner: Runs the trials.
        plan: Shares out the budget.
        clock: Seconds on a clock that only goes forward.
        observer: Watches.
        notes: What the user should know, in words, so far.
    """

    ledger: Ledger
    runner: TrialRunner
    plan: TimePlan
    clock: Callable[[], float]
    observer: Observer
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Tell the user something, now and in the result."""
        self.notes.append(text)
        self.observer.note(text)
