"""What a study gives back: its trials, the confirmation, the verdict and the recommendation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from autotune.breakeven import BreakEven, break_even
from autotune.environment import Environment
from autotune.measurement import JobFacts, Measurement, Outcome, StopReason, TrialFailure
from autotune.objective import Objective
from autotune.settings import CompileMode, Settings
from autotune.statistics import Comparison, Estimate, Verdict, geometric_mean_estimate


class Role(StrEnum):
    """Why a trial was run."""

    BASELINE = "baseline"
    EXPERT = "expert"
    SEARCH = "search"
    CONFIRMATION = "confirmation"


class TrialState(StrEnum):
    """How a trial ended, in Optuna's words."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One trial of a study.

    Attributes:
        number: Counts all trials of the study from 0, the confirmation's included.
        role: Why it was run.
        outcome: What it ended in.
        score: What is maximised, by default throughput in samples/s; None without a feasible
            measurement.
        infeasible: Why a measured setting must not be used; None when it may.
        started_at: Unix time of its start, seconds.
        total_s: Wall seconds from request to the end of its processes.
        folder: Folder of its files, relative to the study's.
        metric: Name of the score, with its unit.
    """

    number: int
    role: Role
    outcome: Outcome
    score: float | None
    infeasible: str | None
    started_at: float
    total_s: float
    folder: str
    metric: str = Objective().key

    @property
    def settings(self) -> Settings:
        """The settings that ran."""
        return self.outcome.settings

    @property
    def measurement(self) -> Measurement | None:
        """The measurement, or None for a failure."""
        return self.outcome if isinstance(self.outcome, Measurement) else None

    @property
    def failure(self) -> TrialFailure | None:
        """The failure, or None for a measurement."""
        return self.outcome if isinstance(self.outcome, TrialFailure) else None

    @property
    def state(self) -> TrialState:
        """How it ended. Lack of memory is PRUNED: it says something about the setting."""
        if isinstance(self.outcome, TrialFailure):
            out_of_memory = self.outcome.failure.value == "out_of_memory"
            return TrialState.PRUNED if out_of_memory else TrialState.FAILED
        if self.infeasible is not None or self.outcome.window.stop is StopReason.OUTRACED:
            return TrialState.PRUNED
        return TrialState.COMPLETE


class Arm(StrEnum):
    """A contestant of the confirmation."""

    BASELINE = "baseline"
    EXPERT = "expert"
    BEST = "best"


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """Rates of one contestant, one per fresh process.

    Attributes:
        arm: Which contestant.
        settings: What it ran with.
        rates: Throughput in samples/s of each process, in the order measured.
        throughput: Their geometric mean with its interval.
        scores: Score of each process, where that is not the throughput; empty where it is.
        errors: Standard error of each rate within its window, as a share of it; None where the
            window had too few blocks.
    """

    arm: Arm
    settings: Settings
    rates: tuple[float, ...]
    throughput: Estimate
    scores: tuple[float, ...] = ()
    errors: tuple[float | None, ...] = ()

    @property
    def score(self) -> Estimate:
        """Geometric mean of the scores with its interval."""
        return geometric_mean_estimate(self.scores) if self.scores else self.throughput


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """Interleaved re-measurement in fresh processes; the headline comes from here.

    Attributes:
        arms: The contestants; the expert's is missing when it is also the best or did not run.
        versus_baseline: Best against baseline, by their scores; the others likewise.
        versus_expert: Best against the expert guess; None when they are the same.
        expert_versus_baseline: Expert guess against baseline; None when it was not measured.
        rounds: Complete rounds.
        process_spread: Standard deviation of the logarithm of the rate between fresh processes of
            the same settings, without the windows' own noise; None for a single round.
    """

    arms: tuple[ArmResult, ...]
    versus_baseline: Comparison
    versus_expert: Comparison | None
    expert_versus_baseline: Comparison | None
    rounds: int
    process_spread: Estimate | None = None

    def arm(self, arm: Arm) -> ArmResult | None:
        """Return the result of a contestant, or None where it took no part."""
        return next((result for result in self.arms if result.arm is arm), None)


class StudyEnd(StrEnum):
    """Why the search ended."""

    MINUTES = "minutes"
    TRIALS = "trials"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"
    FAILURES = "failures"
    """Trial after trial failed alike, for a reason that lies in the job."""


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Everything that is shown, logged and exported at the end.

    Attributes:
        study: Name of the study.
        folder: Absolute folder of the study.
        model, data: Short names.
        environment: The machine and versions.
        facts: What the first look at the job told.
        trials: All trials in order, the confirmation's included.
        baseline: Trial of the user's own settings.
        expert: Trial of the expert guess; None when it did not run.
        best: Best trial of the search by its search score; the baseline when nothing beat it.
        confirmation: None when it was interrupted, or when nothing beat the baseline.
        verdict: FASTER means: use `recommended`. Anything else: keep the baseline.
        recommended: The settings to use.
        ended: Why the search ended.
        elapsed_s: Wall seconds of the whole study.
        notes: What the reader should know, in words.
        objective: What was maximised.
        configured: The user's own settings as configured, where those do not fit into memory and
            the baseline has a smaller batch; None where the baseline is what they are.
    """

    study: str
    folder: str
    model: str
    data: str
    environment: Environment
    facts: JobFacts
    trials: tuple[TrialRecord, ...]
    baseline: TrialRecord
    expert: TrialRecord | None
    best: TrialRecord
    confirmation: Confirmation | None
    verdict: Verdict
    recommended: Settings
    ended: StudyEnd
    elapsed_s: float
    notes: tuple[str, ...] = ()
    objective: Objective = Objective()
    configured: Settings | None = None

    @property
    def yours(self) -> Settings:
        """The user's own settings, whether they fit into memory or not."""
        return self.baseline.settings if self.configured is None else self.configured

    @property
    def break_even(self) -> BreakEven | None:
        """When compiling has paid, against the fastest setting that does not compile.

        By the figures of the search. None where the recommended settings do not compile, or there
        is nothing to compare them with.
        """
        searched = [trial for trial in self.trials if trial.role is not Role.CONFIRMATION]
        usable = [t.measurement for t in searched if t.measurement and t.score is not None]
        compiled = [each for each in usable if each.settings == self.recommended]
        eager = [each for each in usable if each.settings.compile is CompileMode.OFF]
        if not compiled or not eager or self.recommended.compile is CompileMode.OFF:
            return None
        return break_even(
            compiled[-1],
            max(eager, key=lambda each: each.window.samples_per_s),
            seen=[t.measurement for t in self.trials if t.measurement],
            dataset_size=self.facts.dataset_size,
        )

    @property
    def failures(self) -> dict[str, int]:
        """Number of failed trials by kind, most frequent first."""
        kinds = Counter(
            trial.failure.failure.value for trial in self.trials if trial.failure is not None
        )
        return dict(kinds.most_common())

    @property
    def first_failures(self) -> dict[str, TrialRecord]:
        """The first failed trial of each kind, the most frequent kind first."""
        first: dict[str, TrialRecord] = {}
        for trial in self.trials:
            if trial.failure is not None:
                first.setdefault(trial.failure.failure.value, trial)
        return {kind: first[kind] for kind in self.failures}
