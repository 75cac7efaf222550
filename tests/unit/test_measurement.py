import dataclasses

import pytest

from autotune.environment import DeviceInfo
from autotune.measurement import (
    Costs,
    FailureKind,
    JobFacts,
    Measurement,
    MemoryUse,
    Phase,
    StopReason,
    TrialFailure,
    Window,
    from_json,
    to_json,
)
from autotune.objective import Objective, infeasible
from autotune.settings import Settings

DEVICE = DeviceInfo("cuda", "H200", 150 << 30, "9.0", True, True)


def window(**changes):
    values = {
        "elapsed_s": 2.0,
        "samples": 64,
        "step_s": (0.5, 0.5, 0.5, 0.5),
        "phase_s": {
            Phase.DATA: (0.2,) * 4,
            Phase.FORWARD: (0.1,) * 4,
            Phase.BACKWARD: (0.15,) * 4,
            Phase.OPTIMIZER: (0.05,) * 4,
        },
        "stall_s": (0.15,) * 4,
        "host_wait_s": (0.18,) * 4,
        "steps_per_block": 1,
        "stop": StopReason.CONVERGED,
        "unmet": None,
    }
    return Window(**{**values, **changes})


def measurement(**changes):
    memory = MemoryUse(
        peak_allocated_bytes=70 << 30,
        peak_reserved_bytes=80 << 30,
        total_bytes=150 << 30,
        alloc_retries=0,
        host_peak_bytes=None,
    )
    values = {
        "settings": Settings(batch_size=16, num_workers=2, prefetch_factor=4),
        "device": DEVICE,
        "window": window(),
        "device_ceiling": None,
        "memory": memory,
        "costs": Costs(start_s=1.0),
        "optimizer_steps": 9,
        "skipped_steps": None,
        "last_loss": 6.9,
    }
    return Measurement(**{**values, **changes})


def test_what_is_derived_from_a_window():
    seen = window()
    assert seen.steps == 4
    assert seen.samples_per_s == 32.0
    assert seen.step_ms == 500.0
    assert seen.phase_ms(Phase.BACKWARD) == pytest.approx(150.0)
    assert seen.stall_share == pytest.approx(0.3)
    assert seen.host_wait_ms == pytest.approx(180.0)
    assert (seen.throughput.low, seen.throughput.value) == (pytest.approx(32.0), 32.0)


@pytest.mark.parametrize(
    "record",
    [
        measurement(),
        TrialFailure(
            settings=Settings(batch_size=8),
            failure=FailureKind.OUT_OF_MEMORY,
            message="CUDA out of memory \u2013 \u00e4\n",
            stage="window",
        ),
        JobFacts(
            device=DEVICE,
            dataset_size=None,
            parameters=25_557_032,
            image_input=True,
            resident=False,
            seconds_per_sample=0.5,
        ),
    ],
)
def test_a_record_survives_the_way_through_json(record):
    assert from_json(to_json(record)) == record


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"kind": "measurement"}',
        to_json(measurement()).replace('"schema_version":1', '"schema_version":2'),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="validation error"):
        from_json(text)


def test_score_is_throughput():
    assert Objective().score(measurement()) == 32.0


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"alloc_retries": 2}, "retried 2 times"),
        ({"alloc_retries": 2, "oom_count": 1}, "ran out of memory (1 x)"),
        ({"peak_reserved_bytes": 145 << 30}, "optimizer state and the widest batch"),
        ({"peak_reserved_bytes": 145 << 30}, "97% of device memory reserved"),
        # A driver that spills into the machine's memory lets more than the device has fit.
        ({"peak_reserved_bytes": 300 << 30}, "200% of device memory reserved"),
    ],
)
def test_living_at_the_memory_limit_is_infeasible(changes, word):
    crowded = measurement(memory=dataclasses.replace(measurement().memory, **changes))
    assert word in infeasible(crowded)


def test_a_measurement_within_its_limits_is_feasible():
    assert infeasible(measurement()) is None
