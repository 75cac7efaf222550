"""What the study makes of a machine that others use: what it says, and when it stops repeating."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.measurement import JobFacts, Outcome, TrialFailure
from autotune.result import TrialRecord

USELESS_REPEATS = 2
"""Repeated windows in a row that were disturbed again, after which none is repeated: whatever
disturbs is there to stay, and repeating would double the study's time for nothing."""

MANY = 0.25
"""Share of disturbed windows from which on the study says so: one in four can be the baseline's, or
that of a round of the confirmation."""


class Repeats:
    """Decides whether a disturbed window is worth being measured again."""

    def __init__(self) -> None:
        self._useless = 0

    @property
    def worthwhile(self) -> bool:
        """Whether the next trial may repeat a window."""
        return self._useless < USELESS_REPEATS

    def expect(self, facts: JobFacts) -> None:
        """Take in the first look at the job: a machine that was busy then mostly stays so."""
        if facts.machine is not None and facts.machine.disturbances:
            self._useless = USELESS_REPEATS

    def learn(self, outcome: Outcome) -> None:
        """Take in a finished trial. A quiet window shows that quiet ones can be had again."""
        if isinstance(outcome, TrialFailure):
            return
        if not outcome.window.disturbances:
            self._useless = 0
        elif outcome.repeated_windows:
            self._useless += 1


def busy_note(facts: JobFacts) -> str | None:
    """Return a warning if others use the machine before the study begins, else None."""
    machine = facts.machine
    if machine is None:
        return None
    found = list(machine.disturbances)
    if machine.device_processes:
        number = machine.device_processes
        found.append(f"{number} other process{'es have' if number > 1 else ' has'} the device open")
    if not found:
        return None
    load = "" if machine.load_average is None else f", load average {machine.load_average:.1f}"
    return (
        f"the machine is busy already ({'; '.join(found)}{load}): rates will be lower and vary "
        "more. End what else runs, or use a quiet machine, for figures to rely on"
    )


def disturbed_note(trials: Iterable[TrialRecord]) -> str | None:
    """Return what to think of the study if many of its windows were disturbed, else None."""
    windows = [trial.measurement.window for trial in trials if trial.measurement is not None]
    disturbed = [
        window.machine for window in windows if window.machine is not None and window.disturbances
    ]
    if not disturbed or len(disturbed) < MANY * len(windows):
        return None
    worst = max(disturbed, key=lambda machine: machine.lost_share)
    return (
        f"{len(disturbed)} of {len(windows)} windows were disturbed (at worst: "
        f"{'; '.join(worst.disturbances)}): rates are a lower bound. Run on a quiet machine for "
        "figures to compare"
    )
