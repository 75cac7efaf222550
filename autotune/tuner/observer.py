"""The contract between the tuner and whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autotune.environment import Environment
from autotune.measurement import JobFacts
from autotune.objective import Objective
from autotune.result import Arm, Role, TrialRecord
from autotune.settings import Settings


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What is about to be done.

    Attributes:
        study: Name of the study.
        facts: What the first look at the job told.
        environment: The machine and versions.
        budget_s: Seconds that everything may take, the confirmation included.
        space_size: Number of distinct settings in the search space.
        knobs: Settings with a choice to make.
        baseline: The user's own settings.
        expert: The expert guess; None when it is not asked for, or is the baseline.
        notes: What the user should know before, such as what was left out of the search, in words.
        objective: What is maximised.
    """

    study: str
    facts: JobFacts
    environment: Environment
    budget_s: float
    space_size: int
    knobs: tuple[str, ...]
    baseline: Settings
    expert: Settings | None
    notes: tuple[str, ...]
    objective: Objective = Objective()


class Observer(Protocol):
    """Is told what the tuner does, as it does it. Called between trials, but for the progress."""

    def study_started(self, plan: StudyPlan) -> None:
        """Everything is ready; the baseline comes next."""
        ...

    def trial_started(self, number: int, role: Role, settings: Settings, label: str) -> None:
        """A trial starts.

        Args:
            number: Number of the trial in the study.
            role: Why it is run.
            settings: What it runs with.
            label: The same in words, such as `confirmation 2: best`.
        """
        ...

    def trial_progress(self, stage: str) -> None:
        """The trial that runs has reached a stage: start, setup, warm-up, window, ..."""
        ...

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """A trial has ended.

        Args:
            record: The trial.
            best: Best trial so far, this one included; None while no baseline is measured.
        """
        ...

    def confirmation_started(self, arms: tuple[Arm, ...], rounds: int) -> None:
        """The confirmation starts.

        Args:
            arms: The contestants.
            rounds: Rounds that it takes at least.
        """
        ...

    def note(self, text: str) -> None:
        """Something that the user should know, in a sentence."""
        ...
