import numpy as np
import pytest

from autotune.measure.warmup import last_change, settled, transient_note


def test_steps_that_still_get_faster_have_not_settled():
    steps = [0.5, 0.4, 0.3, 0.1, 0.1, 0.1]
    assert not settled(steps)
    assert last_change(steps) == pytest.approx(-0.75)
    assert settled([*steps, 0.1, 0.1, 0.1])


def test_one_odd_step_does_not_unsettle():
    assert settled([0.1, 0.1, 0.9, 0.1, 0.1, 0.1])
    assert settled([0.1, 0.1, 0.1, 0.1, 0.1, 0.9])


def test_too_few_steps_have_not_settled():
    assert not settled([0.1] * 5)
    assert last_change([0.2, 0.1]) == pytest.approx(-0.5)


def test_quiet_noise_is_settled_nearly_always():
    random = np.random.default_rng(0)
    looks = [settled(list(1 + 0.05 * random.standard_normal(6))) for _ in range(1000)]
    assert np.mean(looks) > 0.93


def test_a_window_that_began_too_early_says_so():
    random = np.random.default_rng(1)
    steps = 0.1 * (1 + 0.01 * random.standard_normal(80))
    assert transient_note(list(steps), 4) is None
    steps[:20] *= 1.3
    assert "30% longer in the window's first quarter" in transient_note(list(steps), 4)
    assert "shorter" in transient_note([0.07] * 20 + list(steps[20:]), 4)
