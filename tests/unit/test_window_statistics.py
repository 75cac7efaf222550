"""Coverage of a window's 95 % interval, by simulation.

What is asserted is for windows of at least five times the noise's correlation time, (1 + r) / (1 -
r) steps for an AR(1) of coefficient r; a shorter one cannot know its own noise, and some need ten
(experiments/statistics). Three exceptions may cover more than 97 %, never less than 93 %: batches
of a worker pool even out over a window more than blocks show; a drift counts as noise; spikes that
come regularly do too.
"""

import math

import numpy as np
import pytest
import step_times

from autotune.measure.window import StopRule
from autotune.statistics import (
    beginning_shift,
    block_means,
    mean_estimate,
    mean_of_blocks,
    process_spread,
    rate_estimate,
)

WINDOWS = 1500


def coverage(steps, truth, block):
    found = [rate_estimate(window, 1.0, block) for window in steps]
    # Without an upper end an interval holds whatever lies above its lower end.
    return np.mean([f.low is None or f.low <= 1 / truth <= f.high for f in found])


def plain_coverage(steps, truth, block):
    found = [mean_estimate(block_means(window, block)) for window in steps]
    return np.mean([f.low <= truth <= f.high for f in found])


@pytest.mark.parametrize("blocks", [3, 6, 10, 40])
def test_bursts_of_a_worker_pool(blocks):
    random = np.random.default_rng(blocks)
    steps, truth = step_times.groups(random, WINDOWS, 8 * blocks)
    assert np.median(steps) < 0.25 * truth, "bursty: a median of steps lies"
    assert 0.93 <= coverage(steps, truth, 8) <= 0.97


@pytest.mark.parametrize("blocks", [3, 10, 40])
def test_a_pool_simulated_event_by_event(blocks):
    truth = step_times.pool(np.random.default_rng(99), 100, 4000).mean()
    steps = step_times.pool(np.random.default_rng(blocks), 800, 8 * blocks)
    assert 0.93 <= coverage(steps, truth, 8) <= 1.0


@pytest.mark.parametrize(
    ("correlation", "block", "blocks"),
    [(0.5, 8, 3), (0.5, 8, 6), (0.5, 8, 40)]
    + [(0.9, 32, n) for n in (3, 6, 10, 40, 100)]
    + [(0.9, 8, 20), (0.9, 8, 100), (0.6, 1, 100), (0.9, 1, 200)],
)
def test_autocorrelated_steps(correlation, block, blocks):
    random = np.random.default_rng(1)
    steps, truth = step_times.autoregressive(
        random, WINDOWS, block * blocks, correlation=correlation
    )
    assert 0.93 <= coverage(steps, truth, block) <= 0.97


def test_plain_batch_means_would_not_do():
    random = np.random.default_rng(1)
    steps, truth = step_times.autoregressive(random, WINDOWS, 8 * 40, correlation=0.9)
    assert plain_coverage(steps, truth, 8) < 0.8
    assert coverage(steps, truth, 8) > 0.93


@pytest.mark.parametrize("blocks", [3, 6, 40])
def test_a_drift_is_never_hidden_and_does_not_blow_up_the_interval(blocks):
    steps, truth = step_times.drifting(np.random.default_rng(2), 600, 4 * blocks, drift=0.1)
    assert coverage(steps, truth, 4) >= 0.93
    widths = [rate_estimate(window, 1.0, 4).relative_halfwidth for window in steps]
    assert 0.03 <= np.median(widths) <= 0.12, "about the drift itself"


@pytest.mark.parametrize("blocks", [20, 40])
def test_periodic_spikes_are_covered_once_a_window_holds_them(blocks):
    steps, truth = step_times.spiked(np.random.default_rng(3), 600, 8 * blocks)
    assert coverage(steps, truth, 8) >= 0.93


@pytest.mark.parametrize("blocks", [6, 10, 40])
def test_heavy_tails(blocks):
    steps, truth = step_times.heavy_tailed(np.random.default_rng(4), WINDOWS, 8 * blocks)
    assert 0.93 <= coverage(steps, truth, 8) <= 0.97


@pytest.mark.parametrize("spread", [0.01, 0.02, 0.03, 0.05])
def test_stopping_when_the_interval_is_narrow_keeps_the_coverage(spread):
    # The stop rule looks after every block: it could stop where the noise looks small by chance.
    rule = StopRule(rel_halfwidth=0.02, cap_s=8.0, min_blocks=6, min_steps=3, steps_per_block=8)
    steps, truth = step_times.groups(np.random.default_rng(5), 700, 320, spread=1.25 * spread)
    inside, lengths = 0, set()
    for window in steps:
        means = block_means(window, 8)
        count = next(
            n
            for n in range(1, len(means) + 1)
            if rule.decide(means[:n], 8 * n, 1.0, 0.2 * n) is not None
        )
        rate = rate_estimate(window[: 8 * count], 1.0, 8)
        inside += rate.low <= 1 / truth <= rate.high
        lengths.add(count)
    assert 0.93 <= inside / 700 <= 0.97
    assert len(lengths) > 1, "windows ended at different blocks"


def test_many_blocks_are_merged_and_keep_their_mean():
    values = list(np.random.default_rng(6).normal(1.0, 0.1, 100_000))
    found = mean_of_blocks(values)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-3)
    assert found.degrees <= 30


def test_independent_blocks_keep_nearly_all_their_degrees():
    degrees = [
        mean_of_blocks(np.random.default_rng(seed).normal(1, 0.1, 20)).degrees
        for seed in range(300)
    ]
    assert np.median(degrees) > 13


def test_a_constant_has_an_interval_without_width():
    found = mean_of_blocks([0.5] * 8)
    assert (found.mean, found.standard_error) == (0.5, 0.0)
    assert mean_of_blocks([0.5]) is None


def test_a_beginning_that_runs_slower_is_told():
    steps, _ = step_times.heavy_tailed(np.random.default_rng(7), 1, 320, spread=0.05)
    steps[0, :80] *= 1.2
    shift = beginning_shift(block_means(steps[0], 8))
    assert shift.value == pytest.approx(0.2, abs=0.03)
    assert shift.low > 0


def test_steady_and_bursty_windows_are_rarely_told_to_begin_differently():
    random = np.random.default_rng(8)
    windows = [*step_times.groups(random, 400, 160)[0]]
    windows += [*step_times.heavy_tailed(random, 400, 160, spread=0.05)[0]]
    told = [beginning_shift(block_means(window, 8)) is not None for window in windows]
    assert np.mean(told) < 0.02
    assert beginning_shift([1.0, 2.0, 2.0, 2.0]) is None, "too few blocks to tell"


@pytest.mark.parametrize(("spread", "arms", "rounds"), [(0.05, 3, 3), (0.2, 2, 4), (0.02, 3, 6)])
def test_the_spread_between_processes_is_found_and_covered(spread, arms, rounds):
    random = np.random.default_rng(9)
    own = 0.01
    inside, squares = 0, []
    for _ in range(1000):
        speeds = random.uniform(5, 9, (arms, 1))  # contestants differ: that is no spread
        rates = np.exp(speeds + random.normal(0, math.hypot(spread, own), (arms, rounds)))
        found = process_spread(rates, [[own] * rounds] * arms)
        inside += found.low <= spread <= found.high
        squares.append(found.value**2)
    assert 0.93 <= inside / 1000 <= 0.97
    assert math.sqrt(np.mean(squares)) == pytest.approx(spread, rel=0.05)


def test_noise_within_the_windows_is_not_taken_for_a_spread():
    found = process_spread([[100.0, 101.0, 99.0]], [[0.05] * 3])
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high > 0


def test_a_spread_needs_two_processes_of_one_contestant():
    assert process_spread([[100.0], [200.0]], [[0.01], [0.01]]) is None
    assert process_spread([[100.0, 110.0], [200.0]], [[None, None], [None]]).value > 0.05
