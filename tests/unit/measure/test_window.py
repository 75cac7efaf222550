"""The window and its stop rule against a simulated clock with seeded noise."""

import numpy as np
import pytest

from autotune.measure.timers import HostTimer, Mark
from autotune.measure.window import StepSeen, StopRule, run_window, steps_per_block
from autotune.measurement import StopReason


class SimulatedJob:
    """A job whose steps take given seconds on a clock that only moves when it works."""

    def __init__(self, step_s, batch=8):
        self.now_s = 0.0
        self.steps = 0
        self.synchronised = []
        self._step_s = iter(step_s)
        self._batch = batch

    def clock(self):
        return self.now_s

    def synchronize(self):
        self.synchronised.append(self.steps)

    def step(self, timer):
        seconds = next(self._step_s)
        shares = {Mark.FETCHED: 0.1, Mark.COPIED: 0.1, Mark.FORWARD: 0.3, Mark.BACKWARD: 0.4}
        for mark in Mark:
            self.now_s += seconds * shares.get(mark, 0.1)
            timer.mark(mark)
        self.steps += 1
        return StepSeen(self._batch, seconds * 0.1)


def rule(**changes):
    values = {
        "rel_halfwidth": 0.02,
        "cap_s": 8.0,
        "min_blocks": 6,
        "min_steps": 3,
        "steps_per_block": 4,
    }
    return StopRule(**{**values, **changes})


def measure(step_s, **changes):
    job = SimulatedJob(step_s)
    window = run_window(
        job.step,
        timer=HostTimer(job.clock),
        rule=rule(**changes),
        synchronize=job.synchronize,
        clock=job.clock,
    )
    return job, window


def noisy(mean_s, spread, seed=0):
    random = np.random.default_rng(seed)
    while True:
        yield float(mean_s * (1 + spread * random.standard_normal()))


def test_a_steady_job_converges_at_the_fewest_blocks():
    job, window = measure(noisy(0.1, 0.01))
    assert window.stop is StopReason.CONVERGED
    assert window.unmet is None
    assert window.steps == 24
    assert window.samples_per_s == pytest.approx(80, rel=0.02)
    assert job.synchronised == [0, 24], "two synchronisations, none inside"


def test_score_is_samples_over_elapsed_and_phases_add_up():
    _, window = measure(noisy(0.05, 0.2))
    assert window.samples_per_s == pytest.approx(window.samples / sum(window.step_s))
    parts = sum(sum(seconds) for seconds in window.phase_s.values())
    assert parts == pytest.approx(window.elapsed_s, rel=0.01)
    assert window.stall_share == pytest.approx(0.1)


def test_a_noisy_job_stops_at_the_cap_and_names_what_was_not_met():
    _, window = measure(noisy(0.1, 0.5), cap_s=4.0)
    assert window.stop is StopReason.TIME_CAP
    assert "half-width" in window.unmet
    assert "2.0%" in window.unmet
    assert 4.0 <= window.elapsed_s < 5.0


def test_a_slow_job_gets_its_fewest_steps_though_the_time_is_up():
    _, window = measure(noisy(3.0, 0.01), cap_s=4.0, steps_per_block=1)
    assert window.steps == 3
    assert window.stop is StopReason.TIME_CAP
    assert window.unmet.startswith("3 of 6 blocks")


def test_a_very_slow_job_overruns_at_most_twice_the_cap_and_a_step():
    _, window = measure(noisy(10.0, 0.01), cap_s=4.0, steps_per_block=1)
    assert window.steps == 1
    assert window.throughput.low is None, "one block has no interval"


def test_one_long_block_does_not_overrun_the_cap():
    _, window = measure(noisy(1.0, 0.01), cap_s=4.0, steps_per_block=64)
    assert 8.0 < window.elapsed_s < 10.0
    assert window.stop is StopReason.TIME_CAP
    assert window.unmet.startswith("0 of 6 blocks")


def test_the_race_stops_a_trial_that_is_surely_behind():
    job, window = measure(noisy(0.1, 0.03), rel_halfwidth=0.001, race_against=200.0)
    assert window.stop is StopReason.OUTRACED
    assert job.now_s < 8.0


def test_the_race_goes_on_while_the_best_is_within_the_interval():
    _, window = measure(noisy(0.1, 0.3), rel_halfwidth=0.001, cap_s=5.0, race_against=80.0)
    assert window.stop is StopReason.TIME_CAP


def test_bursts_of_a_worker_pool_are_judged_by_whole_turns():
    # Eight workers: one wait of 0.8 s, then seven steps at once. The truth is 0.107 s a step.
    burst = [0.8, *[0.008] * 7] * 1000
    per_block = steps_per_block(8, sum(burst[:8]) / 8)
    assert per_block % 8 == 0
    _, window = measure(burst, steps_per_block=per_block)
    assert window.stop is StopReason.CONVERGED
    assert window.samples_per_s == pytest.approx(8 / (0.856 / 8), rel=1e-6)


@pytest.mark.parametrize(
    ("workers", "step_s", "expected"),
    [(0, 0.1, 2), (0, 1.0, 1), (4, 0.1, 4), (4, 0.01, 20), (16, 0.2, 16)],
)
def test_a_block_spans_a_turn_of_the_workers_and_a_fifth_of_a_second(workers, step_s, expected):
    assert steps_per_block(workers, step_s) == expected


def test_blocks_give_intervals_that_cover_the_truth():
    # Autocorrelated steps: groups of four share their noise, as a pool of four workers makes them.
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(300):
        groups = 0.1 * (1 + 0.2 * random.standard_normal(40))
        steps = np.repeat(np.abs(groups), 4)
        _, window = measure([float(s) for s in steps], cap_s=12.0, rel_halfwidth=1e-6)
        covered += window.throughput.low <= 80 <= window.throughput.high
    assert 0.91 <= covered / 300 <= 0.985
