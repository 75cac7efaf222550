"""The first trials: a look at the job, and the user's own settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.durable import cannot_write
from autotune.errors import AutotuneError, BudgetError, ConfigError, WorkloadError
from autotune.launch.launcher import Launcher
from autotune.measurement import FailureKind, JobFacts, TrialFailure
from autotune.objective import NO_ENERGY, not_compiled
from autotune.request import TrialRequest
from autotune.result import Role, TrialRecord
from autotune.search.exclusions import lacks_memory
from autotune.settings import Settings
from autotune.tuner.session import Session
from autotune.tuner.timeplan import TimePlan, as_minutes

INSPECTION_BATCH = 2
"""Batch of the first look: small, yet one that normalisation layers can train on."""


def inspect_job(
    launcher: Launcher, template: TrialRequest, folder: Path, plan: TimePlan
) -> JobFacts:
    """Look at the job once.

    Args:
        launcher: Runs the look.
        template: Request with what all trials share; its limit is that of the look.
        folder: Folder of the study.
        plan: How the budget is shared out.

    Raises:
        WorkloadError: The job cannot be built or cannot train a plain step.
        BudgetError: The budget ended first.
        OutputError: The folder cannot be made.
    """
    place = folder / "inspection"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(place, error, "Or choose another place with output.dir.") from error
    found = launcher.inspect(replace(template, folder=str(place)))
    if isinstance(found, JobFacts):
        return found
    if found.failure is FailureKind.INTERRUPTED:
        raise KeyboardInterrupt
    if found.failure is FailureKind.TIME_LIMIT:
        raise _out_of_time(
            "one plain step of the job was not trained", found, template.limit_s, plan
        )
    raise _workload_error("the job cannot train one plain step", found)


def measure_baseline(
    settings: Settings,
    session: Session,
    *,
    spent_s: float,
    profile_above: float | None,
    loader_above: float | None,
) -> TrialRecord:
    """Measure the user's own settings; where they lack memory, with the batch halved.

    Args:
        settings: The user's own settings.
        session: The run of the study; what an earlier run found out about memory counts.
        spent_s: Seconds of the budget that are gone already.
        profile_above: As in `TrialRequest`.
        loader_above: As in `TrialRequest`.

    Returns:
        The trial that was measured.

    Raises:
        WorkloadError: The settings do not work.
        BudgetError: The budget ended first.
        ConfigError: The objective is energy, and the device does not tell it.
    """
    while True:
        record = session.ledger.known(settings)
        if record is None or not lacks_memory(record):
            limit_s = session.plan.hard_limit_s(session.clock())
            if limit_s <= 0:
                raise BudgetError(
                    "budget.minutes is too small: it was used up before the baseline could be "
                    f"measured. {_enough(session.plan, spent_s, spent_s)}"
                )
            record = session.runner.run(
                Role.BASELINE,
                settings,
                label="baseline",
                limit_s=limit_s,
                profile_above=profile_above,
                loader_above=loader_above,
            )
            if record.score is not None:
                return record
            if not lacks_memory(record):
                raise _baseline_error(record, limit_s, session.plan)
        why = record.failure.message if record.failure is not None else record.infeasible
        if settings.batch_size == 1:
            raise WorkloadError(f"even a batch of 1 does not fit into memory: {why}")
        smaller = replace(settings, batch_size=settings.batch_size // 2)
        session.note(
            f"the baseline's batch of {settings.batch_size} does not fit into memory ({why}); "
            f"trying {smaller.batch_size}"
        )
        settings = smaller


def too_small(baseline: TrialRecord, plan: TimePlan, spent_s: float) -> BudgetError:
    """Return the error for a budget that leaves no time to measure and confirm another setting.

    Args:
        baseline: The measured baseline.
        plan: How the budget is shared out.
        spent_s: Seconds spent before the first trial.
    """
    return BudgetError(
        f"budget.minutes is too small: the baseline took {baseline.total_s:.0f} s, and no time is "
        "left to measure another setting and to confirm it. "
        f"{_enough(plan, spent_s, plan.cost_s(baseline))}"
    )


def _enough(plan: TimePlan, spent_s: float, trial_s: float) -> str:
    """Return what budget would do, given the seconds before the first trial and of a trial."""
    return f"Use budget.minutes={as_minutes(spent_s + plan.least_s(trial_s)):g} or more."


def _baseline_error(record: TrialRecord, limit_s: float, plan: TimePlan) -> AutotuneError:
    failure = record.failure
    if record.infeasible == NO_ENERGY:
        return ConfigError(
            "objective.metric: got energy, but the device does not tell its energy; use throughput"
        )
    if failure is None and (found := record.measurement) and (why := not_compiled(found)):
        return WorkloadError(
            f"the baseline cannot be used ({record.settings.describe()}): {why}. Use "
            "baseline.compile=off."
        )
    if failure is None:
        return WorkloadError(
            f"the baseline cannot be used ({record.settings.describe()}): non finite: "
            f"{record.infeasible}. Other settings would be held against these numbers: see that "
            "the job learns as it is (learning rate, loss, weights), or change baseline.precision."
        )
    if failure.failure is FailureKind.TIME_LIMIT:
        return _out_of_time("the baseline was not measured", failure, limit_s, plan)
    return _workload_error(f"the baseline failed ({record.settings.describe()})", failure)


def _out_of_time(what: str, failure: TrialFailure, limit_s: float, plan: TimePlan) -> AutotuneError:
    if limit_s < plan.limit_s:
        return BudgetError(
            f"budget.minutes is too small: {what} after {limit_s:.3g} s. "
            f"{_enough(plan, 0.0, limit_s)}"
        )
    return WorkloadError(
        f"{what} within probe.limit_s={limit_s:g} seconds (it had reached {failure.stage}). "
        "Raise probe.limit_s and budget.minutes, or make the job smaller."
    )


def _workload_error(what: str, failure: TrialFailure) -> WorkloadError:
    kind = failure.failure.value.replace("_", " ")
    evidence = f"\n\n{failure.evidence.rstrip()}" if failure.evidence else ""
    return WorkloadError(f"{what}: {kind} at {failure.stage}: {failure.message}{evidence}")
