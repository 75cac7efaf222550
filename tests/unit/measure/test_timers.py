"""Phase timers against a scripted clock: no waiting, exact figures."""

import itertools

import pytest
import torch

from autotune.measure.timers import HostTimer, LabelTimer, Mark, make_timer
from autotune.measurement import Phase


class ScriptedClock:
    """Returns the times it was given, one per call."""

    def __init__(self, times):
        self._times = iter(times)

    def __call__(self):
        return next(self._times)


def run_steps(timer, steps):
    timer.begin()
    for _ in range(steps):
        for mark in Mark:
            timer.mark(mark)


def test_host_timer_splits_a_step_into_its_phases():
    timer = HostTimer(ScriptedClock([10.0, 11.0, 13.0, 17.0, 25.0, 41.0]))
    run_steps(timer, 1)
    times = timer.read()
    assert times.step_s == (31.0,)
    assert times.stall_s == (1.0,)
    assert times.phase_s == {
        Phase.DATA: (3.0,),
        Phase.FORWARD: (4.0,),
        Phase.BACKWARD: (8.0,),
        Phase.OPTIMIZER: (16.0,),
    }


def test_phases_fill_the_steps_and_steps_the_window():
    ticks = list(itertools.accumulate([0.5, *([0.1, 0.2, 0.3, 0.4, 0.5] * 7)]))
    timer = HostTimer(ScriptedClock(ticks))
    run_steps(timer, 7)
    times = timer.read()
    total = sum(sum(seconds) for seconds in times.phase_s.values())
    assert total == pytest.approx(sum(times.step_s)) == pytest.approx(ticks[-1] - ticks[0])


def test_only_complete_steps_count_as_finished():
    timer = HostTimer(ScriptedClock(range(20)))
    run_steps(timer, 2)
    timer.mark(Mark.FETCHED)
    assert list(timer.finished_steps()) == [5, 5]
    with pytest.raises(ValueError, match="not whole steps"):
        timer.read()


def test_labels_name_every_phase_once_in_a_trace():
    timer = LabelTimer()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        run_steps(timer, 1)
        timer.end()
    labels = [event.name for event in recorded.events() if event.name.startswith("autotune::")]
    # The label after the optimizer is the next step's data phase, cut short by end().
    assert labels == [f"autotune::{phase}" for phase in Phase] + ["autotune::data"]


def test_a_cpu_gets_the_host_clock():
    assert isinstance(make_timer(torch.device("cpu")), HostTimer)
