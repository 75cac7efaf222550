import math
import re
from dataclasses import replace

import pytest
from factories import (
    BASELINE,
    BEST,
    make_confirmation,
    make_failure,
    make_measurement,
    make_result,
    make_trial,
)

from autotune.measurement import (
    CompileReport,
    DeviceActivity,
    FailureKind,
    MachineState,
    NumericsReport,
    ThrottleReason,
)
from autotune.objective import Objective
from autotune.result import Role, TrialRecord
from autotune.statistics import Estimate, Verdict
from autotune.tracking.content import result_content, run_name, trial_content


def test_run_name_sorts_and_tells_the_settings() -> None:
    trial = make_trial(7, Role.SEARCH, make_measurement(BEST))
    assert run_name(trial).startswith("007 search bs=512 w=16 pin pf=2 persistent bf16 compile=")


def test_a_measurement_gives_metrics_with_units() -> None:
    content = trial_content(make_trial(1, outcome=make_measurement(BASELINE, 1000, ceiling=4000)))
    metrics = content.metrics
    assert metrics["samples_per_s_low"] < metrics["samples_per_s"] < metrics["samples_per_s_high"]
    phases = ("data_ms", "forward_ms", "backward_ms", "optimizer_ms")
    assert math.isclose(sum(metrics[name] for name in phases), metrics["step_ms"])
    assert metrics["device_ceiling_samples_per_s"] == 4000
    assert "device_ceiling_samples_per_s_low" not in metrics
    assert metrics["peak_reserved_gib"] == 23
    assert metrics["window_s"] == 4
    assert "profile_s" not in metrics
    assert content.params["prefetch_factor"] == "null"
    assert content.tags["state"] == "complete"


def test_the_machine_of_a_window_is_logged() -> None:
    state = MachineState(
        sm_clock_mhz=1410.0,
        temperature_c=64.0,
        power_w=683.0,
        energy_j=320.0,
        throttle_reasons=(ThrottleReason.SW_POWER_CAP,),
        affinity_cores=2,
        usable_cores=2,
        other_cpu_cores=1.7,
    )
    measured = make_measurement()
    window = replace(measured.window, machine=state)
    content = trial_content(
        make_trial(1, outcome=replace(measured, window=window, repeated_windows=1))
    )
    assert content.metrics["samples_per_joule"] == 4
    assert content.metrics["repeated_windows"] == 1
    for name in ("sm_clock_mhz", "temperature_c", "power_w", "energy_j", "other_cpu_cores"):
        assert content.metrics[name] == getattr(state, name)
    assert "steal_share" not in content.metrics
    assert content.tags["disturbed"] == "other processes used 1.7 of 2 cores"
    assert content.tags["limited"].startswith("the power limit held")
    unwatched = trial_content(make_trial(1))
    assert "samples_per_joule" not in unwatched.metrics
    assert not {"disturbed", "limited"} & set(unwatched.tags)


def test_the_guards_curves_are_logged_step_by_step() -> None:
    report = NumericsReport(
        losses=(7.0, None),
        reference=(7.0, 6.0),
        again=(7.1, 6.1),
        difference=0.004,
        tolerance=0.03,
        gradient_norm=2.0,
        reference_norm=2.1,
        skipped_steps=1,
    )
    measured = replace(make_measurement(), numerics=report, skipped_steps=3)
    content = trial_content(make_trial(1, outcome=measured))
    assert content.curves == {
        "first_losses": (7.0, None),
        "first_losses_fp32": (7.0, 6.0),
        "first_losses_fp32_again": (7.1, 6.1),
    }
    assert content.metrics["fp32_difference"] == 0.004
    assert content.metrics["fp32_difference_allowed"] == 0.03
    assert content.metrics["first_skipped_steps"] == 1
    assert content.metrics["skipped_steps"] == 3
    assert content.tags["numerics"] == "checked against fp32"
    for words in ({"failed": "the loss is nan"}, {"unchecked": "the loss is nan"}):
        bad = replace(measured, numerics=NumericsReport(losses=(), **words))
        content = trial_content(make_trial(1, outcome=bad))
        assert content.tags["numerics"] == "the loss is nan"
        assert content.curves == {}


def test_a_failure_has_a_reason_and_no_score() -> None:
    content = trial_content(make_trial(3, outcome=make_failure()))
    assert not any("samples_per_s" in name for name in content.metrics)
    assert content.tags["failure_kind"] == "out_of_memory"
    assert content.tags["reason"].startswith("CUDA out of memory")
    assert content.tags["state"] == "pruned"


def test_an_infeasible_trial_cannot_top_the_table() -> None:
    content = trial_content(make_trial(3, infeasible="95% of device memory reserved"))
    assert "samples_per_s" not in content.metrics
    assert "infeasible_samples_per_s" in content.metrics
    assert content.tags["infeasible"].startswith("95%")


def test_never_a_metric_that_is_not_finite() -> None:
    for loss in (math.nan, math.inf, None):
        content = trial_content(make_trial(0, outcome=make_measurement(last_loss=loss)))
        assert "last_loss" not in content.metrics
    assert all(map(math.isfinite, content.metrics.values()))


def test_odd_text_is_made_fit() -> None:
    failure = make_failure(failure=FailureKind.CRASH, message="\ud800\0" + "ä" * 20_000)
    reason = trial_content(make_trial(0, outcome=failure)).tags["reason"]
    assert len(reason) == 5000
    assert reason.startswith("?ä")
    assert reason.endswith("...")


def test_names_hold_only_what_every_store_takes() -> None:
    allowed = re.compile(r"^[\w\-. :/]{1,250}$", re.ASCII)
    for content in (trial_content(make_trial(0)), result_content(make_result())):
        assert all(allowed.match(name) for name in (*content.metrics, *content.params))


def test_headline_metrics_come_from_the_confirmation() -> None:
    content = result_content(make_result())
    assert content.metrics["samples_per_s"] == 3403.98
    assert content.metrics["baseline_samples_per_s"] == pytest.approx(
        make_confirmation().arms[0].throughput.value, rel=1e-5
    )
    assert 7.9 < content.metrics["speedup_low"] < content.metrics["speedup"] < 8.3
    assert content.metrics["speedup_over_expert"] > 1.1
    assert content.metrics["process_spread"] == 0.08
    assert content.metrics["process_spread_high"] == 0.15
    assert content.tags["verdict"] == "FASTER"
    assert content.params["baseline.batch_size"] == "32"
    assert content.params["recommended.batch_size"] == "512"


def test_keep_your_settings_scores_the_baseline() -> None:
    content = result_content(make_result(verdict=Verdict.UNSURE, recommended=BASELINE))
    assert content.metrics["samples_per_s"] == content.metrics["baseline_samples_per_s"]


def test_without_a_confirmation_there_is_no_speedup() -> None:
    made = make_result(confirmation=None, verdict=Verdict.SAME, recommended=BASELINE)
    content = result_content(replace(made, best=made.baseline))
    assert "speedup" not in content.metrics
    assert content.tags["confirmed"] == "no"


def test_a_trial_describes_itself() -> None:
    def described(trial: TrialRecord) -> str | None:
        return trial_content(trial).tags.get("mlflow.note.content")

    assert described(make_trial(0)) is None
    assert described(make_trial(0, outcome=make_failure())) == (
        "**out_of_memory** in warm-up: CUDA out of memory. Tried to allocate 20.00 GiB"
    )
    assert described(make_trial(0, infeasible="95% reserved")) == "Not to be used: 95% reserved"
    traced = make_trial(0, outcome=make_measurement(trace="trace.json.gz"))
    assert "ui.perfetto.dev" in (described(traced) or "")


def test_metrics_are_short_enough_to_read() -> None:
    for value in trial_content(make_trial(0)).metrics.values():
        assert len(f"{value!r}".lstrip("0.").replace(".", "")) <= 7


def test_what_holds_a_job_back_is_logged() -> None:
    activity = DeviceActivity(
        kernels_per_step=900.0,
        kernel_ms=12.5,
        copy_ms=1.5,
        copy_pinned=True,
        synchronizations_per_step=1.0,
    )
    measured = replace(
        make_measurement(BASELINE, 1000, ceiling=2500),
        loader_ceiling=Estimate(1020, 1000, 1040),
        launch_s=0.004,
        activity=activity,
    )
    content = trial_content(make_trial(1, outcome=measured))
    assert content.tags["bottleneck"] == "input-bound"
    assert content.metrics["loader_ceiling_samples_per_s_low"] == 1000
    assert content.metrics["launch_ms"] == 4
    assert content.metrics["kernels_per_step"] == 900
    assert content.metrics["kernel_ms"] == 12.5
    assert content.metrics["synchronizations_per_step"] == 1
    parts = ("stall", "copying", "slowed", "idle", "computing")
    assert sum(content.metrics[f"{part}_share"] for part in parts) == pytest.approx(1, abs=1e-3)
    plain = trial_content(make_trial(1))
    assert "launch_ms" not in plain.metrics
    assert "idle_share" not in plain.metrics


def test_a_study_tells_what_holds_back_before_and_after() -> None:
    made = make_result()
    free = make_trial(2, outcome=make_measurement(BEST, 3450, stall_share=0.0))
    tags = result_content(replace(made, best=free)).tags
    assert (tags["baseline_bottleneck"], tags["bottleneck"]) == ("input-bound", "device-bound")
    kept = result_content(replace(made, best=free, recommended=BASELINE)).tags
    assert kept["bottleneck"] == "input-bound", "of the settings that are recommended"


def test_another_score_and_compiling_are_metrics_of_their_own():
    report = CompileReport(
        compile_s=37.0, graphs=3, graph_breaks={"print": 2}, recompiles_in_window=1, fell_back="why"
    )
    measured = replace(make_measurement(BEST, 3450), compilation=report)
    best = replace(make_trial(2, outcome=measured), score=5.0, metric="samples_per_joule")
    content = trial_content(best)
    assert content.metrics["samples_per_joule"] == 5.0
    assert content.metrics["samples_per_s"] == pytest.approx(3450, rel=0.05)
    assert content.metrics["compile_s"] == 37.0
    assert (content.metrics["graphs"], content.metrics["graph_breaks"]) == (3, 2)
    assert content.tags["compile_fell_back"] == "why"
    plain = make_result()
    result = replace(
        plain,
        best=best,
        trials=(*plain.trials[:2], best),
        objective=Objective(metric="energy"),
        confirmation=None,
    )
    whole = result_content(result)
    assert whole.metrics["best_samples_per_joule"] == 5.0
    assert whole.metrics["samples_per_joule"] == 5.0
    assert whole.metrics["compile_pays_after_steps"] > 0
    assert "compile_pays_after_steps" not in result_content(plain).metrics


def test_memory_of_all_kinds_is_logged() -> None:
    measured = make_measurement()
    memory = replace(
        measured.memory,
        oom_count=0,
        shm_bytes=2 * 2**30,
        largest_batch_bytes=2**29,
        tail_batch=7,
    )
    metrics = trial_content(make_trial(outcome=replace(measured, memory=memory))).metrics
    assert (metrics["oom_count"], metrics["shm_gib"]) == (0, 2)
    assert (metrics["largest_batch_gib"], metrics["tail_batch"]) == (0.5, 7)
