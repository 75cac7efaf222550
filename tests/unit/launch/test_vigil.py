from __future__ import annotations

import pytest

from autotune.launch.vigil import Alarm, Use, Vigil
from autotune.measurement import FailureKind


class Clock:
    """Seconds, and processor time by main process and others that pass only when told."""

    def __init__(self) -> None:
        self.s = 100.0
        self.main_s = 0.0
        self.others_s = 0.0

    def __call__(self) -> float:
        return self.s

    def use(self) -> Use | None:
        return Use(self.main_s, self.others_s)


def vigil(clock: Clock, *, limit_s: float = 600.0, spins: bool = False) -> Vigil:
    return Vigil(limit_s=limit_s, hang_s=60.0, spins=spins, use=clock.use, clock=clock)


def run(
    watched: Vigil, clock: Clock, seconds: int, *, main: float = 0.0, others: float = 0.0
) -> Alarm | None:
    """Let seconds pass with these shares of a core in use; return the first alarm."""
    for _ in range(seconds):
        clock.s += 1.0
        clock.main_s += main
        clock.others_s += others
        if (alarm := watched.alarm()) is not None:
            return alarm
    return None


def test_who_neither_steps_nor_computes_hangs_after_its_time() -> None:
    clock = Clock()
    watched = vigil(clock)
    watched.enter("window")
    assert run(watched, clock, 59) is None
    alarm = run(watched, clock, 1)
    assert alarm is not None
    assert alarm.kind is FailureKind.HANG
    assert "in: window" in alarm.why
    assert "probe.hang_s" in alarm.why


@pytest.mark.parametrize(("main", "others"), [(1.0, 0.0), (0.0, 0.1)])
def test_who_computes_does_not_hang(main: float, others: float) -> None:
    clock = Clock()
    watched = vigil(clock)
    watched.enter("window")
    assert run(watched, clock, 300, main=main, others=others) is None


def test_idle_upkeep_is_no_computing() -> None:
    clock = Clock()
    watched = vigil(clock)
    watched.enter("window")
    assert run(watched, clock, 61, main=0.005, others=0.005) is not None


@pytest.mark.parametrize("stage", ["warm-up", "ceiling", "window"])
def test_waiting_for_a_device_by_spinning_is_no_computing(stage: str) -> None:
    clock = Clock()
    watched = vigil(clock, spins=True)
    watched.enter(stage)
    alarm = run(watched, clock, 61, main=1.0)
    assert alarm is not None
    assert alarm.kind is FailureKind.HANG
    watched.enter(stage)
    assert run(watched, clock, 100, main=1.0, others=0.5) is None, "its workers decode"


@pytest.mark.parametrize("stage", ["setup", "compile"])
def test_a_main_process_that_builds_or_compiles_computes(stage: str) -> None:
    clock = Clock()
    watched = vigil(clock, spins=True)
    watched.enter(stage)
    assert run(watched, clock, 200, main=1.0) is None


def test_steps_are_life() -> None:
    clock = Clock()
    watched = vigil(clock)
    watched.enter("window")
    for step in range(1, 5):
        assert run(watched, clock, 50) is None
        watched.beat(step)
    watched.beat(4)  # as before: no step
    assert run(watched, clock, 60) is None, "ten times the longest step is more than hang_s"


def test_slow_steps_are_given_ten_times_their_length() -> None:
    clock = Clock()
    watched = vigil(clock, limit_s=6000.0)
    watched.enter("window")
    run(watched, clock, 30)
    watched.beat(1)
    assert run(watched, clock, 299) is None
    assert run(watched, clock, 2) is not None


def test_the_limit_of_the_whole_trial_ends_it_whatever_it_does() -> None:
    clock = Clock()
    watched = vigil(clock, limit_s=90.0)
    watched.enter("window")
    alarm = run(watched, clock, 90, main=1.0)
    assert alarm is not None
    assert alarm.kind is FailureKind.TIME_LIMIT
    assert "probe.limit_s" in alarm.why
    assert watched.left_s == 0.0


def test_a_stage_leaves_time_for_what_follows() -> None:
    clock = Clock()
    watched = vigil(clock)
    watched.enter("compile")
    assert run(watched, clock, 479, main=1.0) is None
    alarm = run(watched, clock, 2, main=1.0)
    assert alarm is not None
    assert alarm.kind is FailureKind.TIME_LIMIT
    assert "compile was not done" in alarm.why


def test_no_stage_is_ended_before_a_hang_would_be() -> None:
    clock = Clock()
    watched = vigil(clock, limit_s=80.0)
    watched.enter("setup")
    assert run(watched, clock, 59, main=1.0) is None
    assert run(watched, clock, 2, main=1.0) is not None


def test_a_family_that_cannot_be_seen_is_not_taken_for_busy() -> None:
    clock = Clock()
    watched = Vigil(limit_s=600.0, hang_s=60.0, spins=False, use=lambda: None, clock=clock)
    assert run(watched, clock, 61) is not None
