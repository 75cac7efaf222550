"""What is logged of a trial and of a study: names, numbers and words. Knows no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from autotune.diagnosis import Part, diagnose
from autotune.measurement import (
    CompileReport,
    DeviceActivity,
    MachineState,
    Measurement,
    NumericsReport,
    Phase,
)
from autotune.result import Arm, Confirmation, StudyResult, TrialRecord
from autotune.settings import Settings, yaml_word
from autotune.statistics import Estimate
from autotune.tracking.limits import PARAM_LIMIT, Content, fit, fit_text

_TRACE_HINT = "The artifact trace.json.gz opens in https://ui.perfetto.dev or chrome://tracing."

SCORE = "samples_per_s"
"""The metric that runs are sorted by. A trial that must not win does not have it."""


def run_name(trial: TrialRecord) -> str:
    """Return a name that sorts by number and tells the settings: `007 search bs=256 w=16 bf16`."""
    return fit_text(f"{trial.number:03d} {trial.role} {trial.settings.label()}", PARAM_LIMIT)


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
        machine = measured.window.machine
        score = SCORE if trial.infeasible is None else f"infeasible_{SCORE}"
        metrics |= _estimate(score, measured.window.throughput) | _measured(measured)
        if trial.metric != SCORE:
            metrics[trial.metric] = trial.score
        tags |= {
            "stop": str(measured.window.stop),
            "unmet": measured.window.unmet,
            "device": measured.device.name,
            "bottleneck": str(diagnose(measured).bottleneck),
            "disturbed": "; ".join(measured.window.disturbances) or None,
            "limited": "; ".join(machine.limits) or None if machine is not None else None,
            "compile_fell_back": measured.compilation.fell_back if measured.compilation else None,
            "notes": "\n".join(measured.notes) or None,
        }
    tags["mlflow.note.content"] = _description(trial)
    numerics = trial.measurement.numerics if trial.measurement is not None else None
    if numerics is not None:
        tags["numerics"] = numerics.failed or numerics.unchecked or "checked against fp32"
        metrics |= {
            "fp32_difference": numerics.difference,
            "fp32_difference_allowed": numerics.tolerance,
            "first_gradient_norm": numerics.gradient_norm,
            "first_gradient_norm_fp32": numerics.reference_norm,
            "first_skipped_steps": numerics.skipped_steps,
        }
    return fit(
        params=_settings("", trial.settings),
        metrics=metrics,
        tags=tags,
        curves=_curves(numerics) if numerics is not None else None,
    )


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
    tuned = result.recommended == result.best.settings
    recommended = best if tuned else baseline
    recommended_trial = result.best if tuned else result.baseline
    metrics |= _estimate(SCORE, recommended)
    metrics |= _estimate(f"baseline_{SCORE}", baseline) | _estimate(f"best_{SCORE}", best)
    if result.expert is not None:
        metrics |= _estimate(f"expert_{SCORE}", _throughput(result, Arm.EXPERT, result.expert))
    if result.confirmation is not None:
        metrics |= _speedups(result.confirmation)
    if not result.objective.is_plain:
        metrics |= _scores(result)
    if (pays := result.break_even) is not None:
        metrics |= {"recommended_compile_s": pays.compile_s}
        metrics |= _estimate("compile_pays_after_steps", pays.steps)
    tags: dict[str, str | None] = {
        "model": result.model,
        "data": result.data,
        "device": result.facts.device.name,
        "verdict": str(result.verdict),
        "confirmed": "yes" if result.confirmation is not None else "no",
        "ended": str(result.ended),
        "baseline_bottleneck": _bottleneck(result.baseline),
        "bottleneck": _bottleneck(recommended_trial),
        "recommended": result.recommended.label(),
        "best_trial": f"{result.best.number:03d}",
        "notes": "\n".join(result.notes) or None,
    }
    params = _settings("baseline.", result.baseline.settings)
    params |= _settings("recommended.", result.recommended)
    return fit(params=params, metrics=metrics, tags=tags)


def _description(trial: TrialRecord) -> str | None:
    """Return what the UI shows first on a trial's page."""
    if trial.failure is not None:
        failure = trial.failure
        return f"**{failure.failure}** in {failure.stage}: {failure.message}"
    if trial.infeasible is not None:
        return f"Not to be used: {trial.infeasible}"
    traced = trial.measurement is not None and trial.measurement.trace is not None
    return _TRACE_HINT if traced else None


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
        **_estimate(f"loader_ceiling_{SCORE}", measured.loader_ceiling),
        **_shares(measured),
        "launch_ms": None if measured.launch_s is None else 1e3 * measured.launch_s,
        **_activity(measured.activity),
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
        "samples_per_joule": measured.samples_per_joule,
        "repeated_windows": measured.repeated_windows,
        **_machine(window.machine),
        **_compiled(measured.compilation),
        **asdict(measured.costs),
    }


def _shares(measured: Measurement) -> dict[str, float]:
    # Waiting for data has its metric, stall_share.
    shares = diagnose(measured).shares
    return {f"{part}_share": shares[part] for part in shares if part is not Part.WAITING}


def _activity(activity: DeviceActivity | None) -> dict[str, float | None]:
    if activity is None:
        return {}
    return {
        "kernels_per_step": activity.kernels_per_step,
        "kernel_ms": activity.kernel_ms,
        "copy_ms": activity.copy_ms,
        "synchronizations_per_step": activity.synchronizations_per_step,
    }


def _bottleneck(trial: TrialRecord) -> str | None:
    return None if trial.measurement is None else str(diagnose(trial.measurement).bottleneck)


def _machine(state: MachineState | None) -> dict[str, float | None]:
    if state is None:
        return {}
    return {
        "sm_clock_mhz": state.sm_clock_mhz,
        "temperature_c": state.temperature_c,
        "power_w": state.power_w,
        "energy_j": state.energy_j,
        "device_processes": state.device_processes,
        "device_other_share": state.device_other_share,
        "load_average": state.load_average,
        "other_cpu_cores": state.other_cpu_cores,
        "steal_share": state.steal_share,
        "quota_throttled_share": state.quota_throttled_share,
    }


def _curves(numerics: NumericsReport) -> dict[str, Sequence[float | None]]:
    found = {
        "first_losses": numerics.losses,
        "first_losses_fp32": numerics.reference,
        "first_losses_fp32_again": numerics.again,
    }
    return {name: losses for name, losses in found.items() if losses}


def _compiled(report: CompileReport | None) -> dict[str, float | None]:
    if report is None:
        return {}
    return {
        "compile_s": report.compile_s,
        "compile_cache_hits": report.cache_hits,
        "compile_cache_misses": report.cache_misses,
        "graphs": report.graphs,
        "graph_breaks": sum(report.graph_breaks.values()),
        "recompiles_before": report.recompiles_before,
        "recompiles_in_window": report.recompiles_in_window,
    }


def _speedups(confirmation: Confirmation) -> dict[str, float | None]:
    versus_expert = confirmation.versus_expert
    return {
        "confirmation_rounds": confirmation.rounds,
        **_estimate("process_spread", confirmation.process_spread),
        **_estimate("speedup", confirmation.versus_baseline.ratio),
        **_estimate("speedup_over_expert", versus_expert.ratio if versus_expert else None),
    }


def _scores(result: StudyResult) -> dict[str, float | None]:
    """Return the scores of baseline and best, where they are not the throughput."""
    key, metrics = result.objective.key, dict[str, float | None]()
    for name, arm, trial in (
        ("baseline", Arm.BASELINE, result.baseline),
        ("best", Arm.BEST, result.best),
    ):
        found = result.confirmation.arm(arm) if result.confirmation is not None else None
        score = Estimate(trial.score) if trial.score is not None else None
        metrics |= _estimate(f"{name}_{key}", found.score if found is not None else score)
        if trial.settings == result.recommended:
            metrics[key] = metrics.get(f"{name}_{key}")
    return metrics


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
    return {f"{prefix}{name}": yaml_word(value) for name, value in settings.as_dict().items()}


def _gib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 2**30
