from dataclasses import replace
from datetime import date

import pytest
from factories import (
    BASELINE,
    BEST,
    make_confirmation,
    make_failure,
    make_measurement,
    make_result,
    make_trial,
)

from autotune.export import load_tuned, tuned_from, write_tuned
from autotune.measurement import CompileReport
from autotune.objective import Objective
from autotune.statistics import Verdict


def test_faster_exports_the_best_with_confirmed_figures() -> None:
    tuned = tuned_from(make_result())
    assert tuned.settings == BEST
    assert tuned.created == date(2026, 9, 21)
    assert tuned.evidence.confirmed
    assert tuned.evidence.tuned_samples_per_s.value == 3403.98
    assert tuned.evidence.baseline_samples_per_s.value == pytest.approx(420.659)
    assert tuned.evidence.expert_samples_per_s is not None
    assert tuned.evidence.speedup is not None
    assert tuned.evidence.speedup.low == pytest.approx(7.99212)
    assert tuned.evidence.search_trials == 5
    assert (tuned.holds_for.device_name, tuned.holds_for.torch) == ("NVIDIA H200", "2.14.1")


def test_keep_your_settings_exports_the_baseline() -> None:
    tuned = tuned_from(make_result(verdict=Verdict.UNSURE, recommended=BASELINE))
    assert tuned.settings == BASELINE
    assert tuned.evidence.tuned_samples_per_s == tuned.evidence.baseline_samples_per_s
    assert tuned.evidence.speedup is None, "it would be that of settings which are not in the file"


def test_nothing_beat_the_baseline() -> None:
    made = make_result(confirmation=None, verdict=Verdict.SAME, recommended=BASELINE)
    tuned = tuned_from(replace(made, best=made.baseline))
    assert not tuned.evidence.confirmed
    assert tuned.evidence.speedup is None
    assert tuned.evidence.rounds == 0


def test_unconfirmed_figures_come_from_the_search_without_an_interval_for_the_ratio() -> None:
    evidence = tuned_from(make_result(confirmation=None, verdict=Verdict.UNSURE)).evidence
    assert not evidence.confirmed
    assert evidence.tuned_samples_per_s.value == pytest.approx(3458, rel=0.01)
    assert evidence.speedup is not None
    assert evidence.speedup.low is None


def test_best_is_the_expert_guess() -> None:
    made = make_result(confirmation=make_confirmation(expert=None))
    expert = make_trial(1, outcome=make_measurement(BEST, 3450))
    evidence = tuned_from(replace(made, best=expert, expert=expert)).evidence
    assert evidence.expert_samples_per_s == evidence.tuned_samples_per_s


def test_a_failed_expert_has_no_figure() -> None:
    made = make_result(expert=make_trial(1, outcome=make_failure(replace(BEST, num_workers=3))))
    confirmation = make_confirmation(expert=None)
    evidence = tuned_from(replace(made, confirmation=confirmation)).evidence
    assert evidence.expert_samples_per_s is None


def test_no_baseline_no_export() -> None:
    made = make_result(confirmation=None, baseline=make_trial(0, outcome=make_failure(BASELINE)))
    with pytest.raises(ValueError, match="baseline"):
        tuned_from(made)


def test_compiling_and_another_score_are_in_the_evidence(tmp_path) -> None:
    report = CompileReport(compile_s=37.0, graph_breaks={}, cache_hits=0, cache_misses=2)
    plain = make_result()
    best = make_trial(2, outcome=replace(make_measurement(BEST, 3450), compilation=report))
    confirmation = make_confirmation()
    arms = tuple(
        replace(arm, scores=tuple(rate / 10 for rate in arm.rates)) for arm in confirmation.arms
    )
    result = replace(
        plain,
        best=best,
        trials=(*plain.trials[:2], best),
        objective=Objective(metric="energy"),
        confirmation=replace(confirmation, arms=arms),
    )
    tuned = tuned_from(result)
    assert tuned.evidence.compiling is not None
    assert tuned.evidence.compiling.compile_s == 37.0
    assert tuned.evidence.compiling.pays_off_after_steps is not None
    assert tuned.evidence.scores is not None
    assert tuned.evidence.scores.metric == "samples_per_joule"
    assert tuned.evidence.scores.tuned is not None
    assert tuned.evidence.scores.tuned.value == pytest.approx(340.398)
    assert tuned.evidence.tuned_samples_per_s.value == pytest.approx(3403.98)
    write_tuned(tuned, tmp_path / "tuned.yaml")
    with pytest.warns(UserWarning, match="measured with NVIDIA H200"):
        assert load_tuned(tmp_path / "tuned.yaml") == tuned
    write_tuned(tuned_from(plain), tmp_path / "plain.yaml")
    text = (tmp_path / "plain.yaml").read_text()
    assert "compiling" not in text
    assert "scores" not in text
