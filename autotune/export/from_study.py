"""From a study's result to what is exported."""

from __future__ import annotations

from datetime import UTC, datetime

from autotune.export.tuned import Compiling, Evidence, Figure, HoldsFor, Scores, Tuned
from autotune.result import Arm, Role, StudyResult, TrialRecord
from autotune.statistics import Estimate


def tuned_from(result: StudyResult) -> Tuned:
    """Return the settings that a study recommends, with their evidence.

    Raises:
        ValueError: The baseline has no measurement; such a study has no result.
    """
    challenged = result.best.settings != result.baseline.settings
    changed = challenged and result.recommended == result.best.settings
    baseline = _throughput(result, Arm.BASELINE, result.baseline)
    if baseline is None:
        raise ValueError("a study without a measured baseline cannot be exported")
    best = _throughput(result, Arm.BEST, result.best) if challenged else baseline
    expert = result.expert
    if expert is None:
        expert_rate = None
    elif expert.settings == result.best.settings:
        expert_rate = best
    else:
        expert_rate = _throughput(result, Arm.EXPERT, expert)
    return Tuned(
        created=datetime.fromtimestamp(result.baseline.started_at, UTC).date(),
        settings=result.recommended,
        evidence=Evidence(
            verdict=result.verdict,
            confirmed=result.confirmation is not None,
            tuned_samples_per_s=best
            if best is not None and result.recommended == result.best.settings
            else baseline,
            baseline_samples_per_s=baseline,
            expert_samples_per_s=expert_rate,
            speedup=_speedup(result) if changed else None,
            rounds=result.confirmation.rounds if result.confirmation is not None else 0,
            search_trials=sum(trial.role is not Role.CONFIRMATION for trial in result.trials),
            compiling=_compiling(result),
            scores=None if result.objective.is_plain else _scores(result),
        ),
        holds_for=_holds_for(result),
    )


def _holds_for(result: StudyResult) -> HoldsFor:
    device, stamp = result.facts.device, result.environment
    return HoldsFor(
        device_kind=device.kind,
        device_name=device.name,
        cpus=stamp.usable_cpus,
        torch=stamp.packages.get("torch"),
        python=stamp.python,
        model=result.model,
        data=result.data,
    )


def _throughput(result: StudyResult, arm: Arm, trial: TrialRecord) -> Figure | None:
    confirmed = result.confirmation.arm(arm) if result.confirmation is not None else None
    if confirmed is not None:
        return _figure(confirmed.throughput)
    return _figure(trial.measurement.window.throughput) if trial.measurement is not None else None


def _compiling(result: StudyResult) -> Compiling | None:
    told = result.break_even
    if told is None:
        return None
    return Compiling(
        compile_s=_rounded(told.compile_s),
        cold_cache=told.cold,
        pays_off_after_steps=None if told.steps is None else _figure(told.steps),
        pays_off_after_epochs=None if told.epochs is None else _rounded(told.epochs),
    )


def _scores(result: StudyResult) -> Scores:
    baseline = _score(result, Arm.BASELINE, result.baseline)
    best = _score(result, Arm.BEST, result.best)
    tuned = best if result.recommended == result.best.settings else baseline
    return Scores(metric=result.objective.key, tuned=tuned, baseline=baseline)


def _score(result: StudyResult, arm: Arm, trial: TrialRecord) -> Figure | None:
    confirmed = result.confirmation.arm(arm) if result.confirmation is not None else None
    if confirmed is not None:
        return _figure(confirmed.score)
    return None if trial.score is None else _figure(Estimate(trial.score))


def _speedup(result: StudyResult) -> Figure | None:
    if result.confirmation is not None:
        return _figure(result.confirmation.versus_baseline.ratio)
    best, baseline = result.best.score, result.baseline.score
    # Two single windows of a search have no interval for their ratio.
    return _figure(Estimate(best / baseline)) if best and baseline else None


def _figure(estimate: Estimate) -> Figure:
    low, high = (None if end is None else _rounded(end) for end in (estimate.low, estimate.high))
    return Figure(value=_rounded(estimate.value), low=low, high=high)


def _rounded(value: float) -> float:
    digits = 6  # significant: more than any of these figures can be trusted to
    return float(f"{value:.{digits}g}")
