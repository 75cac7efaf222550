"""Spikes, their periods, and the report in words and pictures."""

import re

import numpy as np
import pytest
from rich.console import Console

import autotune
from autotune.errors import OutputError
from autotune.timing.spikes import find_spikes, spike_limit


def noisy_steps(rng, count, mean_s=0.1, spread=0.03):
    return mean_s * rng.lognormal(0, spread, count)


def periods(step_s):
    return [(group.every, len(group.at)) for group in find_spikes(step_s) if group.every]


def test_the_limit_is_that_of_iglewicz_and_hoaglin():
    # Median 10, median absolute deviation 2: 10 + 3.5 * 2 / 0.6745.
    assert spike_limit(np.array([6.0, 8.0, 10.0, 12.0, 14.0])) == pytest.approx(20.378, abs=1e-3)


def test_equal_steps_have_no_spikes_and_one_far_above_equal_ones_is_one():
    assert find_spikes(np.full(50, 0.1)) == []
    steps = np.full(50, 0.1)
    steps[30] = 0.2
    (group,) = find_spikes(steps)
    assert group.at.tolist() == [30]
    assert (group.every, group.excess_s) == (None, pytest.approx(0.1))


def test_outliers_too_small_to_matter_are_no_spikes():
    steps = np.random.default_rng(0).normal(0.1, 1e-4, 200)
    steps[50] = 0.102
    assert find_spikes(steps) == []


@pytest.mark.parametrize("offset", [0, 37, 99])
def test_a_checkpoint_every_100_steps_is_found(offset):
    steps = noisy_steps(np.random.default_rng(1), 1500)
    steps[offset::100] += 0.42
    (group,) = find_spikes(steps)
    assert group.every == 100
    assert group.at.tolist() == list(range(offset, 1500, 100))
    assert group.due == 15
    assert group.excess_s == pytest.approx(0.42, abs=0.01)


def test_a_period_is_found_among_other_spikes_and_with_some_missing():
    rng = np.random.default_rng(2)
    steps = noisy_steps(rng, 2000)
    steps[49:1900:50] += 0.3
    steps[rng.choice(2000, 15, replace=False)] += 0.2
    assert periods(steps) in ([(50, 37)], [(50, 38)])


def test_a_rare_long_spike_on_top_of_frequent_short_ones_is_found():
    steps = noisy_steps(np.random.default_rng(3), 3000)
    steps[9::10] += 0.05
    steps[499::500] += 2.0
    found = {group.every: group for group in find_spikes(steps)}
    assert set(found) == {10, 500}
    assert found[500].at.tolist() == [499, 999, 1499, 1999, 2499, 2999]


def test_three_equal_distances_are_not_a_period():
    steps = noisy_steps(np.random.default_rng(4), 400)
    steps[[50, 150, 250]] += 0.4
    assert periods(steps) == []


def test_spikes_at_random_are_hardly_ever_called_periodic():
    rng = np.random.default_rng(5)
    false = 0
    for _ in range(300):
        count = int(rng.integers(100, 600))
        steps = noisy_steps(rng, count)
        steps[rng.random(count) < rng.uniform(0.01, 0.2)] += 0.4
        false += bool(periods(steps))
    assert false <= 2


def test_spikes_in_bursts_are_hardly_ever_called_periodic():
    rng = np.random.default_rng(6)
    false = 0
    for _ in range(200):
        steps = noisy_steps(rng, 500)
        for start in rng.choice(480, int(rng.integers(3, 15)), replace=False):
            steps[start : start + int(rng.integers(1, 12))] += 0.4
        false += bool(periods(steps))
    assert false <= 2


class Run:
    """A training run of made-up times on a clock of its own."""

    def __init__(self):
        self.now_s = 0.0
        self.rng = np.random.default_rng(7)
        self.timer = autotune.StepTimer("cpu", clock=lambda: self.now_s)

    def work(self, ms):
        self.now_s += ms / 1e3 * self.rng.lognormal(0, 0.02)

    def epoch(self, start_ms):
        self.work(start_ms)
        for number in range(150):
            self.work(10)
            yield number

    def train(self):
        number = 0
        for _ in range(3):
            for _ in self.timer.iterate(self.epoch(800 if number else 0)):
                number += 1
                with self.timer.phase("forward"):
                    self.work(12_300 if number == 1 else 30)
                with self.timer.phase("backward"):
                    self.work(1_000 if number == 2 else 60)
                self.work(420 if number % 100 == 0 else 2)
                self.timer.step(samples=16)
        return self.timer.report()


@pytest.fixture(scope="module")
def report():
    return Run().train()


def test_spikes_are_told_by_what_they_are(report):
    restart, checkpoint = report.spikes
    assert restart.at_restart
    assert (restart.steps, restart.phase) == ((151, 301), "data")
    assert (checkpoint.every, checkpoint.phase) == (100, "other")
    assert checkpoint.steps == (100, 200, 300, 400)
    assert len(report.warm_up_s) == 2
    assert report.first == 3


def test_the_report_reads_as_plain_text(report):
    text = str(report)
    assert text.startswith("Steps 3 to 450 on cpu: mean ")
    assert "samples/s" in text.splitlines()[0]
    assert "first 2 steps, left out: 13.4 s: compile, cuDNN search" in text
    period = (
        r"every 100 steps \(step 100, 200, 300, 400; 4 of 4 times\): \+4\d\d ms, in other: a ch"
    )
    assert re.search(period, text)
    assert re.search(r"first step of an epoch \(step 151, 301\): \+7\d\d ms, in data", text)
    assert "\x1b" not in text


def test_the_report_prints_with_rich(report):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(report)
    shown = console.export_text()
    assert report.summary in shown
    assert "backward" in shown
    assert "every 100 steps" in shown


def test_a_normal_first_step_is_not_suspected():
    now = iter(np.arange(0, 1000, 0.05))
    timer = autotune.StepTimer("cpu", clock=lambda: float(next(now)))
    for _ in range(20):
        with timer.phase("forward"):
            pass
        timer.step()
    remark = str(timer.report()).splitlines()[-1]
    assert remark.startswith("first step, left out: ")
    assert "compile" not in remark


def test_the_report_can_be_drawn(report, tmp_path):
    for name in ("steps.png", "steps.svg"):
        report.plot(tmp_path / name)
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "steps.svg").read_text()
    for label in ("backward", "every 100 steps, +", "first of an epoch"):
        assert f"<!-- {label}" in drawn


@pytest.mark.parametrize("name", ["missing/steps.png", "steps.nonsense"])
def test_a_picture_that_cannot_be_written_is_told(report, tmp_path, name):
    with pytest.raises(OutputError, match=name):
        report.plot(tmp_path / name)
