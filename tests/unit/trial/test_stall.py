"""Stall and host wait in real training steps, on a clock that moves when the loader or model says.

A device is played by events that pass when its queue has come to them. Times in seconds.
"""

import pytest
import torch

from autotune.measure import timers
from autotune.measure.timers import EventTimer, HostTimer
from autotune.measure.window import StopRule, run_window
from autotune.measurement import Phase
from autotune.settings import Settings
from autotune.trial import job as job_module
from autotune.trial.job import TrainingJob
from autotune.workloads.workload import Workload

STEPS = 12


class Machine:
    """A host's clock and the end of what is queued on its device."""

    def __init__(self):
        self.now_s = 0.0
        self.queued_s = 0.0

    def clock(self):
        return self.now_s

    def work(self, seconds):
        self.now_s += seconds

    def queue(self, seconds):
        self.queued_s = max(self.now_s, self.queued_s) + seconds

    def synchronize(self):
        self.now_s = max(self.now_s, self.queued_s)


class Model(torch.nn.Module):
    """Works for given seconds in its forward pass, and does little else."""

    def __init__(self, work, seconds):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self._work, self._seconds = work, seconds

    def forward(self, batch):
        self._work(self._seconds)
        return self.layer(batch).mean()


def delayed(machine, delay_s):
    while True:
        machine.work(delay_s)
        yield torch.ones(4, 2)


def window(machine, monkeypatch, *, work, timer, step_s, delay_s):
    # TrainingJob reads the host's clock for the host wait.
    monkeypatch.setattr(job_module.time, "perf_counter", machine.clock)
    workload = Workload(
        dataset=None,
        collate=None,
        build_model=lambda: Model(work, step_s),
        loss=None,
        build_optimizer=lambda parameters, fused: torch.optim.SGD(parameters, lr=0.1),
        shuffle=False,
        drop_last=True,
        resident=False,
    )
    job = TrainingJob(workload, Settings(batch_size=4), torch.device("cpu"), seed=0)
    batches = delayed(machine, delay_s)
    return run_window(
        lambda timer: job.step(batches, timer),
        timer=timer,
        rule=StopRule(
            rel_halfwidth=1e-9, cap_s=1e-9, min_blocks=STEPS, min_steps=STEPS, steps_per_block=STEPS
        ),
        synchronize=machine.synchronize,
        clock=machine.clock,
    )


def on_host(monkeypatch, delay_s):
    machine = Machine()
    timer = HostTimer(machine.clock)
    return window(
        machine, monkeypatch, work=machine.work, timer=timer, step_s=0.020, delay_s=delay_s
    )


def on_device(monkeypatch, delay_s):
    machine = Machine()

    class Event:
        def __init__(self, device, enable_timing):
            assert enable_timing
            self.at_s = None

        def record(self):
            self.at_s = max(machine.now_s, machine.queued_s)

        def query(self):
            return self.at_s <= machine.now_s

        def elapsed_time(self, later):
            return 1e3 * (later.at_s - self.at_s)

    monkeypatch.setattr(timers.torch, "Event", Event)
    timer = EventTimer(torch.device("cuda"))
    return window(
        machine, monkeypatch, work=machine.queue, timer=timer, step_s=0.020, delay_s=delay_s
    )


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.060])
def test_on_a_cpu_every_delay_of_the_loader_is_stall_and_never_forward(monkeypatch, delay_s):
    seen = on_host(monkeypatch, delay_s)
    assert seen.stall_ms == pytest.approx(1e3 * delay_s)
    assert seen.host_wait_ms == pytest.approx(1e3 * delay_s)
    assert seen.phase_ms(Phase.FORWARD) == pytest.approx(20)


def test_a_delay_that_queued_work_hides_is_host_wait_without_stall(monkeypatch):
    seen = on_device(monkeypatch, 0.005)
    assert seen.host_wait_ms == pytest.approx(5)
    # The first batch comes to an empty queue.
    assert sum(seen.stall_s[1:]) == pytest.approx(0)
    assert seen.phase_ms(Phase.FORWARD) == pytest.approx(20)


def test_of_a_longer_delay_the_device_waits_for_what_is_not_hidden(monkeypatch):
    seen = on_device(monkeypatch, 0.060)
    assert seen.host_wait_ms == pytest.approx(60)
    assert seen.stall_s[1:] == pytest.approx([0.040] * (STEPS - 1))
    assert seen.phase_ms(Phase.FORWARD) == pytest.approx(20)


@pytest.mark.parametrize("delay_s", [0.005, 0.060])
def test_phases_sum_up_to_the_window(monkeypatch, delay_s):
    for seen in (on_host(monkeypatch, delay_s), on_device(monkeypatch, delay_s)):
        assert seen.untimed_share == pytest.approx(0, abs=1e-9)
        parts = sum(sum(seconds) for seconds in seen.phase_s.values())
        assert parts == pytest.approx(seen.elapsed_s)
