from dataclasses import replace

import pytest
from factories import BASELINE, make_measurement

from autotune.measurement import CompileReport, Costs, MachineState, Measurement
from autotune.objective import NO_ENERGY, NO_FIRST_STEP, Objective, coldest, start_up
from autotune.settings import CompileMode

COMPILED = replace(BASELINE, compile=CompileMode.DEFAULT)


def seen(settings=BASELINE, rate=1000.0, *, first_s=1.0, misses=None, joules=None) -> Measurement:
    report = None
    if settings.compile is not CompileMode.OFF:
        hits = None if misses is None else 4 - misses
        report = CompileReport(
            compile_s=first_s, graph_breaks={}, cache_hits=hits, cache_misses=misses
        )
    measured = make_measurement(settings, rate)
    machine = None if joules is None else MachineState(energy_j=joules)
    return replace(
        measured,
        window=replace(measured.window, machine=machine),
        costs=Costs(first_step_s=first_s),
        compilation=report,
    )


def test_the_default_is_throughput_as_measured():
    objective, measured = Objective(), make_measurement(samples_per_s=812.0)
    assert objective.is_plain
    assert objective.score(measured) == measured.window.samples_per_s
    assert (objective.key, objective.unit) == ("samples_per_s", "samples/s")


def test_planned_samples_charge_the_first_step_once():
    objective = Objective(planned_samples=10_000)
    measured = seen(rate=1000.0, first_s=10.0)
    rate = measured.window.samples_per_s
    assert objective.score(measured) == pytest.approx(10_000 / (10_000 / rate + 10.0))
    assert objective.score(measured) < rate


def test_a_short_training_turns_the_ranking_around():
    eager, compiled = seen(rate=1000.0, first_s=1.0), seen(COMPILED, 1500.0, first_s=40.0)
    # 39 s more at the start are made up after 39 / (1/1000 - 1/1500) = 117,000 samples.
    short, long = Objective(planned_samples=100_000), Objective(planned_samples=150_000)
    assert short.score(eager) > short.score(compiled)
    assert long.score(eager) < long.score(compiled)


def test_the_start_of_a_fresh_run_is_that_with_a_cold_cache():
    cold = seen(COMPILED, first_s=37.0, misses=4)
    warm = seen(replace(COMPILED, num_workers=4), first_s=5.0, misses=0)
    other = seen(replace(COMPILED, batch_size=64), first_s=60.0, misses=4)
    assert start_up(warm, [other]).seconds == 5.0
    assert start_up(warm, [other]).cold is False
    found = start_up(warm, [cold, other])
    assert (found.seconds, found.cold) == (37.0, True)
    assert coldest(warm, [cold, other]) is cold
    planned = Objective(planned_samples=1000)
    assert planned.score(warm, [cold]) < planned.score(warm)


def test_a_setting_that_does_not_compile_pays_its_own_first_step():
    found = start_up(seen(first_s=2.0), [seen(first_s=9.0), seen(COMPILED, first_s=37.0, misses=4)])
    assert (found.seconds, found.cold) == (2.0, None)


def test_energy_is_samples_of_the_window_over_its_joules():
    objective = Objective(metric="energy")
    frugal, fast = seen(rate=500.0, joules=100.0), seen(rate=1000.0, joules=400.0)
    assert objective.score(frugal) == frugal.window.samples / 100.0
    assert objective.score(frugal) > objective.score(fast)
    assert (objective.key, objective.unit) == ("samples_per_joule", "samples/J")


def test_what_a_score_lacks_is_said():
    assert Objective(metric="energy").lacking(seen()) == NO_ENERGY
    assert Objective(metric="energy").lacking(seen(joules=5.0)) is None
    assert Objective(planned_samples=9).lacking(seen(first_s=None)) == NO_FIRST_STEP
    assert Objective().lacking(seen(first_s=None)) is None
    with pytest.raises(ValueError, match="energy"):
        Objective(metric="energy").score(seen())


def test_only_scores_that_the_throughput_bounds_are_raced():
    assert Objective().race_against(900.0) == 900.0
    assert Objective(planned_samples=1000).race_against(900.0) == 900.0
    assert Objective(metric="energy").race_against(3.0) is None
