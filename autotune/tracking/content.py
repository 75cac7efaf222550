"""What is logged of a trial and of a study: names, numbers and words. Knows no store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from autotune.measurement import Measurement, Phase
from autotune.result import Arm, Confirmation, StudyResult, TrialRecord
from autotune.settings import Settings, yaml_word
from autotune.statistics import Estimate

PARAM_LIMIT = 250
TAG_LIMIT = 5000
"""Longest values, in characters: the least that MLflow 1.x and 2.x servers accept (3.17 itself
takes 6000 and 8000)."""

_DIGITS = 6
"""Significant digits of a metric: more than any can be trusted to, and few enough to be read."""

_TRACE_HINT = "The artifact trace.json.gz opens in https://ui.perfetto.dev or chrome://tracing."

SCORE = "samples_per_s"
"""The metric that runs are sorted by. A trial that must not win does not have it."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a run holds besides files.

    Attributes:
        params: Settings, as text.
        metrics: Finite numbers, with units in their names.
        tags: Words.
    """

    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


def run_name(trial: TrialRecord) -> str:
    """Return a name that sorts by number and tells the settings: `007 search bs=256 w=16 bf16`."""
    return clean(f"{trial.number:03d} {trial.role} {trial.settings.label()}", PARAM_LIMIT)


def trial_content(trial: TrialRecord) -> Content:
    """Return what is logged of a trial."""
    metrics: dict[str, float | None] = {"total_s": trial.total_s}
    tags: dict[str, str | None] = {
        "trial": f"{trial.number:03d}",
        "role": str(trial.role),
        "state": str(trial.state),
        "infeasible": trial.infeasible,
    }
    if trial.failure is not None:
        tags["failure_kind"] = str(trial.failure.failure)
        tags["failure_stage"] = trial.failure.stage
        tags["reason"] = trial.failure.message
        metrics |= asdict(trial.failure.costs)
    if trial.measurement is not None:
        measured = trial.measurement
        score = SCORE if trial.infeasible is None else f"infeasible_{SCORE}"
        metrics |= _estimate(score, measured.window.throughput) | _measured(measured)
        tags |= {
            "stop": str(measured.window.stop),
            "unmet": measured.window.unmet,
            "device": measured.device.name,
            "notes": "\n".join(measured.notes) or None,
        }
    tags["mlflow.note.content"] = _description(trial)
    return Content(params=_settings("", trial.settings), metrics=_finite(metrics), tags=_tags(tags))


def result_content(result: StudyResult) -> Content:
    """Return what is logged of a whole study when it is over."""
    metrics: dict[str, float | None] = {
        "elapsed_s": result.elapsed_s,
        "trials": len(result.trials),
        "failed_trials": sum(result.failures.values()),
    }
    baseline = _throughput(result, Arm.BASELINE, result.baseline)
    best = _throughput(result, Arm.BEST, result.best)
    if result.best.settings == result.baseline.settings:
        best = baseline
    recommended = best if result.recommended == result.best.settings else baseline
    metrics |= _estimate(SCORE, recommended)
    metrics |= _estimate(f"baseline_{SCORE}", baseline) | _estimate(f"best_{SCORE}", best)
    if result.expert is not None:
        metrics |= _estimate(f"expert_{SCORE}", _throughput(result, Arm.EXPERT, result.expert))
    if result.confirmation is not None:
        metrics |= _speedups(result.confirmation)
    tags: dict[str, str | None] = {
        "model": result.model,
        "data": result.data,
        "device": result.facts.device.name,
        "verdict": str(result.verdict),
        "confirmed": "yes" if result.confirmation is not None else "no",
        "ended": str(result.ended),
        "recommended": result.recommended.label(),
        "best_trial": f"{result.best.number:03d}",
        "notes": "\n".join(result.notes) or None,
    }
    params = _settings("baseline.", result.baseline.settings)
    params |= _settings("recommended.", result.recommended)
    return Content(params=params, metrics=_finite(metrics), tags=_tags(tags))


def clean(text: str, limit: int) -> str:
    """Return text that every store takes: valid Unicode, no zero characters, not too long."""
    valid = text.encode("utf-8", "replace").decode().replace("\0", "")
    return valid if len(valid) <= limit else valid[: limit - 3] + "..."


def _description(trial: TrialRecord) -> str | None:
    """Return what the UI shows first on a trial's page."""
    if trial.failure is not None:
        failure = trial.failure
        return f"**{failure.failure}** in {failure.stage}: {failure.message}"
    if trial.infeasible is not None:
        return f"Not to be used: {trial.infeasible}"
    traced = trial.measurement is not None and trial.measurement.trace is not None
    return _TRACE_HINT if traced else None


def rounded(value: float) -> float:
    """Return a metric with as many digits as are of use."""
    return float(f"{value:.{_DIGITS}g}")


def _measured(measured: Measurement) -> dict[str, float | None]:
    window, memory = measured.window, measured.memory
    return {
        "step_ms": window.step_ms,
        **{f"{phase}_ms": window.phase_ms(phase) for phase in Phase},
        "stall_ms": window.stall_ms,
        "stall_share": window.stall_share,
        "host_wait_ms": window.host_wait_ms,
        "steps": window.steps,
        **_estimate(f"device_ceiling_{SCORE}", measured.device_ceiling),
        "peak_allocated_gib": _gib(memory.peak_allocated_bytes),
        "peak_reserved_gib": _gib(memory.peak_reserved_bytes),
        "peak_host_gib": _gib(memory.host_peak_bytes),
        "alloc_retries": memory.alloc_retries,
        "oom_count": memory.oom_count,
        "shm_gib": _gib(memory.shm_bytes),
        "largest_batch_gib": _gib(memory.largest_batch_bytes),
        "tail_batch": memory.tail_batch,
        "skipped_steps": measured.skipped_steps,
        "last_loss": measured.last_loss,
        **asdict(measured.costs),
    }


def _speedups(confirmation: Confirmation) -> dict[str, float | None]:
    versus_expert = confirmation.versus_expert
    return {
        "confirmation_rounds": confirmation.rounds,
        **_estimate("process_spread", confirmation.process_spread),
        **_estimate("speedup", confirmation.versus_baseline.ratio),
        **_estimate("speedup_over_expert", versus_expert.ratio if versus_expert else None),
    }


def _throughput(result: StudyResult, arm: Arm, trial: TrialRecord) -> Estimate | None:
    confirmed = result.confirmation.arm(arm) if result.confirmation is not None else None
    if confirmed is not None:
        return confirmed.throughput
    return trial.measurement.window.throughput if trial.measurement is not None else None


def _estimate(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _settings(prefix: str, settings: Settings) -> dict[str, str]:
    return {
        f"{prefix}{name}": clean(yaml_word(value), PARAM_LIMIT)
        for name, value in settings.as_dict().items()
    }


def _finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Round, and leave out what is missing or what SQL stores turn into huge or broken numbers."""
    return {
        name: rounded(value)
        for name, value in metrics.items()
        if value is not None and math.isfinite(value)
    }


def _tags(tags: Mapping[str, str | None]) -> dict[str, str]:
    return {name: clean(text, TAG_LIMIT) for name, text in tags.items() if text is not None}


def _gib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 2**30
