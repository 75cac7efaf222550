from dataclasses import replace

import pytest
from factories import BASELINE, make_measurement, make_result, make_trial

from autotune.breakeven import BreakEven, break_even
from autotune.measurement import CompileReport
from autotune.result import Role
from autotune.settings import CompileMode

COMPILED = replace(BASELINE, batch_size=64, compile=CompileMode.DEFAULT)


def compiled(rate, compile_s=30.0, settings=COMPILED, misses=2):
    report = CompileReport(
        compile_s=compile_s, graph_breaks={}, cache_hits=2 - misses, cache_misses=misses
    )
    return replace(make_measurement(settings, rate), compilation=report)


def test_compile_seconds_over_the_seconds_saved_per_sample():
    fast, slow = compiled(1500.0), make_measurement(BASELINE, 1000.0)
    found = break_even(fast, slow, dataset_size=45_000)
    saved_s = 1 / slow.window.samples_per_s - 1 / fast.window.samples_per_s
    assert found.samples.value == pytest.approx(30.0 / saved_s)
    assert found.steps.value == pytest.approx(30.0 / saved_s / 64)  # of the compiled setting
    assert found.epochs == pytest.approx(30.0 / saved_s / 45_000)
    assert found.cold is True


def test_the_interval_holds_the_value_and_may_have_no_upper_end():
    clear = break_even(compiled(1500.0), make_measurement(BASELINE, 1000.0)).samples
    assert clear.low < clear.value < clear.high
    close = break_even(compiled(1002.0), make_measurement(BASELINE, 1000.0)).samples
    assert close.low < close.value
    assert close.high is None


def test_what_is_not_faster_never_pays():
    found = break_even(compiled(990.0), make_measurement(BASELINE, 1000.0), dataset_size=10)
    assert (found.samples, found.steps, found.epochs) == (None, None, None)


def test_a_stream_has_no_epochs():
    found = break_even(compiled(1500.0), make_measurement(BASELINE, 1000.0))
    assert found.epochs is None


def test_the_cost_is_that_of_a_cold_cache_if_one_was_seen():
    warm = compiled(1500.0, compile_s=3.0, misses=0)
    slow = make_measurement(BASELINE, 1000.0)
    assert break_even(warm, slow).compile_s == 3.0
    found = break_even(warm, slow, seen=[compiled(1400.0, compile_s=40.0)])
    assert (found.compile_s, found.cold) == (40.0, True)


def result(rate, eager=1000.0, recommended=COMPILED):
    trials = (
        make_trial(0, Role.BASELINE, make_measurement(BASELINE, 500.0)),
        make_trial(1, Role.EXPERT, make_measurement(replace(BASELINE, num_workers=8), eager)),
        make_trial(2, outcome=compiled(rate)),
    )
    return make_result(trials=trials, baseline=trials[0], expert=trials[1], best=trials[2],
                       recommended=recommended)  # fmt: skip


def test_a_study_compares_with_the_fastest_that_does_not_compile():
    found = result(1500.0).break_even
    assert isinstance(found, BreakEven)
    assert found.samples.value == pytest.approx(90_000, rel=0.05)  # 30 / (1/1000 - 1/1500)
    assert result(1500.0, eager=1600.0).break_even.samples is None


def test_settings_that_do_not_compile_have_no_break_even():
    assert result(1500.0, recommended=BASELINE).break_even is None
    assert make_result().break_even is None  # compiles, but was not watched
