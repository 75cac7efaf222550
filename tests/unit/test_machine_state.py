"""What counts as a disturbance of a window, and what is the machine's own limit."""

from dataclasses import replace

import pytest
from factories import make_measurement, make_window

from autotune.measurement import MachineState, ThrottleReason, from_json, to_json

ALONE = MachineState(affinity_cores=16, usable_cores=16, other_cpu_cores=0.3, steal_share=0.001)


def test_a_machine_that_tells_nothing_is_not_disturbed():
    assert MachineState().disturbances == MachineState().limits == ()
    assert MachineState().lost_share == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"other_cpu_cores": 1.5}, ()),
        ({"other_cpu_cores": 1.7}, ("other processes used 1.7 of 16 cores",)),
        ({"steal_share": 0.03}, ("the hypervisor took 3 % of the processor time",)),
        ({"device_processes": 3, "device_other_share": 0.0}, ()),
        ({"device_other_share": 0.4}, ("another process used the device in 40 % of the time",)),
        ({"throttle_reasons": (ThrottleReason.SW_POWER_CAP,)}, ()),
        ({"throttle_reasons": (ThrottleReason.SYNC_BOOST,)}, ()),
        (
            {"throttle_reasons": (ThrottleReason.HW_POWER_BRAKE,)},
            ("the device lowered its clocks: hw power brake",),
        ),
        ({"quota_cores": 4.0, "quota_throttled_share": 0.9}, ()),
    ],
    ids=str,
)
def test_disturbances(changes, words):
    assert replace(ALONE, **changes).disturbances == words


def test_under_a_quota_others_may_use_what_it_leaves_free():
    state = MachineState(
        affinity_cores=64, usable_cores=16, quota_cores=16, other_cpu_cores=48, steal_share=0
    )
    assert state.lost_share == 0
    assert replace(state, other_cpu_cores=56).lost_share == pytest.approx(0.5)
    assert replace(state, other_cpu_cores=56).disturbances == (
        "other processes used 56.0 of 64 cores",
    )


def test_limits_are_named():
    state = replace(
        ALONE,
        throttle_reasons=(ThrottleReason.SW_POWER_CAP,),
        sm_clock_mhz=1395.4,
        sm_clock_max_mhz=1980,
        quota_cores=4.0,
        quota_throttled_share=0.6,
    )
    assert state.limits == (
        "the power limit held the device's clocks to 1395 of 1980 MHz",
        "the CPU quota of 4 cores was used up in 60 % of its periods",
    )
    assert state.disturbances == ()
    assert state.lost_share == ALONE.lost_share


def test_lower_clocks_are_speed_lost_where_the_hardware_held_them():
    clocks = replace(ALONE, sm_clock_mhz=990, sm_clock_max_mhz=1980)
    hot = replace(clocks, throttle_reasons=(ThrottleReason.HW_THERMAL,))
    assert hot.lost_share == pytest.approx(clocks.lost_share + 0.5)


def test_samples_per_joule():
    window = make_window(samples_per_s=1000, batch_size=32, steps=40)
    assert window.samples_per_joule is None
    assert replace(window, machine=MachineState()).samples_per_joule is None
    watched = replace(window, machine=MachineState(energy_j=640.0))
    assert watched.samples_per_joule == 2.0
    assert replace(make_measurement(), window=watched).samples_per_joule == 2.0


def test_the_state_travels_with_its_record():
    state = replace(ALONE, throttle_reasons=(ThrottleReason.HW_SLOWDOWN,), other_cpu_cores=8.0)
    measured = make_measurement()
    measured = replace(measured, window=replace(measured.window, machine=state))
    assert from_json(to_json(measured)).window.machine == state
