from dataclasses import replace

import pytest
from factories import BASELINE, CPU, EXPERT, make_measurement

from autotune.measurement import DeviceActivity, Measurement, Phase
from autotune.report import bottleneck
from autotune.report.bottleneck import share_table
from autotune.settings import CompileMode
from autotune.statistics import Estimate


def test_input_bound_names_the_wait_and_the_gain() -> None:
    sentence = bottleneck(make_measurement(samples_per_s=2550, ceiling=6390, stall_share=0.61))
    assert sentence.startswith("input-bound: the device waited 61 % of the time for data; ")
    assert "if data were free: 6,390/s, 2.5" in sentence


@pytest.mark.parametrize(
    ("stall_share", "start"),
    [(0.2001, "input-bound"), (0.1, "partly input-bound"), (0.01, "device-bound")],
)
def test_thresholds(stall_share: float, start: str) -> None:
    assert bottleneck(make_measurement(stall_share=stall_share)).startswith(start)


def test_device_bound_names_the_largest_phase() -> None:
    sentence = bottleneck(make_measurement(ceiling=1010, stall_share=0.0))
    assert sentence.startswith("device-bound: the device waited 0 % of the time for data; ")
    assert "backward took 60 %" in sentence


def test_loading_that_slows_the_device_without_a_wait() -> None:
    sentence = bottleneck(make_measurement(ceiling=1500, stall_share=0.02))
    assert sentence.startswith("slowed by loading, though the device waited 2 %")
    assert "if data were free: 1,500/s, 1.5" in sentence


@pytest.mark.parametrize("ceiling", [Estimate(500), Estimate(1500, 900, 4000), None])
def test_a_ceiling_within_noise_or_below_the_rate_promises_nothing(
    ceiling: Estimate | None,
) -> None:
    measured = replace(
        make_measurement(samples_per_s=1000, stall_share=0.01), device_ceiling=ceiling
    )
    sentence = bottleneck(measured)
    assert sentence.startswith("device-bound: ")
    assert "if data were free" not in sentence


def test_a_cpu_that_takes_turns_is_not_slowed_by_loading() -> None:
    sentence = bottleneck(make_measurement(device=CPU, ceiling=4000, stall_share=0.01))
    assert sentence.startswith("device-bound: 1 % of the time went into loading; backward took")
    assert "if data were free" not in sentence


def test_without_a_ceiling_nothing_is_promised() -> None:
    assert "if data were free" not in bottleneck(make_measurement(stall_share=0.9))


def test_a_ceiling_below_the_rate_is_not_shown_as_a_gain() -> None:
    sentence = bottleneck(make_measurement(samples_per_s=1000, ceiling=990, stall_share=0.01))
    assert "if data were free" not in sentence


def test_a_cpu_loads_or_waits_by_its_workers() -> None:
    alone = bottleneck(make_measurement(BASELINE, device=CPU))
    assert alone.startswith("input-bound: 50 % of the time went into loading")
    workers = replace(EXPERT, pin_memory=False)
    assert "training waited 50 % of the time for data" in bottleneck(
        make_measurement(workers, device=CPU)
    )


def traced(measured: Measurement, **changes: object) -> Measurement:
    values = {
        "kernels_per_step": 1200.0,
        "kernel_ms": 16.0,
        "copy_ms": 2.0,
        "copy_pinned": False,
        "synchronizations_per_step": 0.0,
    }
    return replace(measured, activity=DeviceActivity(**{**values, **changes}))  # type: ignore[arg-type]


def resident(**changes: object) -> Measurement:
    """Return a job that never waits: steps of 32 ms, with a resident batch as well."""
    queued = replace(make_measurement(stall_share=0.0, ceiling=1000), launch_s=0.031)
    return replace(queued, **changes)  # type: ignore[arg-type]


def test_launch_bound_tells_kernels_and_what_graphs_would_give() -> None:
    sentence = bottleneck(traced(resident()))
    assert sentence.startswith("launch-bound: the device idled 50 % of the time between kernels")
    assert "1,200 in a step" in sentence
    assert "queueing one takes the host 31.0 ms, where a step takes 32.0 ms" in sentence
    assert "launches were free (CUDA graphs: compile=reduce-overhead): up to 2.0" in sentence
    graphs = replace(BASELINE, compile=CompileMode.REDUCE_OVERHEAD)
    assert "CUDA graphs" not in bottleneck(traced(resident(settings=graphs)))


def test_a_host_that_waits_for_the_device_is_told() -> None:
    sentence = bottleneck(traced(resident(), synchronizations_per_step=3.0))
    assert "the host waited for the device 3 x in each" in sentence


def test_without_a_trace_launching_and_waiting_look_alike() -> None:
    assert bottleneck(resident()).startswith("launch-bound or synchronising: queueing one takes")
    assert bottleneck(resident(launch_s=0.01)).startswith("device-bound")


def copying(measured: Measurement, share: float) -> Measurement:
    """Return it with that share of each step spent on copies, taken from the forward pass."""
    window = measured.window
    phase_s = dict(window.phase_s)
    phase_s[Phase.DATA] = tuple(share * step for step in window.step_s)
    phase_s[Phase.FORWARD] = tuple(
        forward - share * step
        for forward, step in zip(phase_s[Phase.FORWARD], window.step_s, strict=True)
    )
    return replace(measured, window=replace(window, phase_s=phase_s))


def test_transfer_bound_tells_from_which_memory() -> None:
    measured = copying(make_measurement(stall_share=0.0), 0.25)
    assert bottleneck(measured) == (
        "transfer-bound: copies to the device took 25 % of the time; "
        "if copies to the device were hidden: up to 1.33 x"
    )
    assert "copies to the device from pageable memory took" in bottleneck(traced(measured))
    assert "from pinned memory took" in bottleneck(traced(measured, copy_pinned=True))
    on_cpu = bottleneck(copying(make_measurement(device=CPU, stall_share=0.0), 0.25))
    assert on_cpu.startswith("transfer-bound: laying out the batch anew took 25 % of the time")


def test_sharing_cores_shows_both_ceilings() -> None:
    measured = make_measurement(EXPERT, 1000, ceiling=2000, stall_share=0.3)
    sentence = bottleneck(replace(measured, loader_ceiling=Estimate(1300)))
    assert sentence.startswith("slowed by loading: the device waited 30 % of the time for data, ")
    assert "alone, the device does 2,000/s and the loader 1,300/s" in sentence
    assert "if neither slowed the other: up to 1.30 x" in sentence
    waits = bottleneck(replace(measured, loader_ceiling=Estimate(1020)))
    assert waits.startswith("input-bound")
    assert waits.endswith("the loader alone gives 1,020/s")
    partly = make_measurement(EXPERT, 1000, stall_share=0.1)
    assert bottleneck(replace(partly, loader_ceiling=Estimate(1020))).endswith(
        "the loader alone gives 1,020/s"
    )


def test_the_table_of_shares_leaves_out_what_nobody_knows() -> None:
    text = share_table({"Baseline": resident(), "Best": traced(resident())})
    rows = {row.split("|")[1].strip(): row.split("|")[2:4] for row in text.splitlines()}
    assert [cell.strip() for cell in rows["idle between kernels"]] == ["-", "50 %"]
    assert "idle between kernels" not in share_table({"Baseline": resident()})
