from dataclasses import replace

from factories import BASELINE, BEST, make_confirmation, make_measurement, make_result, make_trial

from autotune.measurement import CompileReport
from autotune.objective import Objective
from autotune.report import compiling, headline, markdown, phase_table
from autotune.result import Role
from autotune.statistics import Verdict

ENERGY = Objective(metric="energy")


def compiled(number=2, rate=3450.0, fell_back=None, misses=2):
    report = CompileReport(
        compile_s=37.0, graph_breaks={}, cache_hits=0, cache_misses=misses, fell_back=fell_back
    )
    return make_trial(number, outcome=replace(make_measurement(BEST, rate), compilation=report))


def study(best, eager=2900.0, **changes):
    eager = make_trial(0, Role.BASELINE, make_measurement(BASELINE, eager))
    return make_result(trials=(eager, best), baseline=eager, best=best, expert=None, **changes)


def test_it_says_when_compiling_has_paid():
    (told,) = compiling(study(compiled()))
    # 37 / (1/2900 - 1/3450) = 673,000 samples, in steps of 512
    assert told.startswith("compiling costs 37.0 s with a cold cache; pays off after 1,317 steps (")
    assert told.endswith("), 0.527 epochs")
    assert f"## Compiling\n\n- {told}" in markdown(study(compiled()), view=None)


def test_it_says_when_compiling_never_pays():
    (told,) = compiling(study(compiled(), eager=3500.0))
    assert "never pays off" in told


def test_an_interval_without_an_upper_end():
    (told,) = compiling(study(compiled(rate=2905.0)))
    assert " or more)" in told


def test_fall_backs_are_told_once_each():
    why = "ran without CUDA graphs because of cpu device (net.py:12)"
    trials = (*study(compiled()).trials, compiled(3, 3000.0, why), compiled(4, 3000.0, why))
    told = compiling(replace(study(compiled()), trials=trials))
    assert told[1:] == (f"trial 003 (compile=reduce-overhead) fell back: {why}",)


def test_without_compiling_there_is_nothing_to_say():
    assert compiling(make_result()) == ()
    assert "## Compiling" not in markdown(make_result(), view=None)


def scored(objective=ENERGY, **changes):
    """Return a study whose scores are a tenth of its rates."""
    plain = make_result()
    trials = tuple(
        replace(trial, score=None if trial.score is None else trial.score / 10, metric="m")
        for trial in plain.trials
    )
    confirmation = make_confirmation()
    arms = tuple(
        replace(arm, scores=tuple(rate / 10 for rate in arm.rates)) for arm in confirmation.arms
    )
    values = {
        "objective": objective,
        "trials": trials,
        "baseline": trials[0],
        "expert": trials[1],
        "best": trials[2],
        "confirmation": replace(confirmation, arms=arms),
    }
    return replace(plain, **{**values, **changes})


def test_the_headline_is_in_the_score_and_in_its_words():
    told = headline(scored())
    assert told.startswith("Better: 8.09 x")
    assert "your samples per joule: 340.4 samples/J (" in told
    planned = headline(scored(Objective(planned_samples=640_000)))
    assert planned.startswith("Faster: ")
    assert "samples per second over 640,000 samples with the start-up: 340.4 planned" in planned
    assert headline(make_result()).startswith("Faster: 8.09 x")
    assert "your samples per second: 3,404 samples/s (" in headline(make_result())


def test_keeping_ones_settings_is_said_in_the_same_words():
    same = headline(scored(verdict=Verdict.SAME))
    assert "the best found is as good, within 2 %" in same
    unconfirmed = headline(scored(confirmation=None))
    assert "346 samples/J against 42.1 samples/J" in unconfirmed
    unbeaten = headline(scored(confirmation=None, best=scored().baseline))
    assert "no other was better" in unbeaten
    assert "They give 42.1 samples/J" in unbeaten


def test_the_tables_show_score_and_throughput():
    assert "| samples/J " in phase_table(scored())
    assert "| samples/J " not in phase_table(make_result())
    page = markdown(scored(), view=None)
    assert "samples/J ratio" in page
    assert "Samples/J of each fresh process" in page
    assert "| samples/s " in page
    assert "What was maximised is samples per joule" in page
    planned = markdown(scored(Objective(planned_samples=640_000)), view=None)
    assert "What was maximised is planned samples/s: 640,000 samples" in planned
    assert "What was maximised" not in markdown(make_result(), view=None)
