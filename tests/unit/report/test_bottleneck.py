from dataclasses import replace

import pytest
from factories import BASELINE, CPU, EXPERT, make_measurement

from autotune.report import bottleneck
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
