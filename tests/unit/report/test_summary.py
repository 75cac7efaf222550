from dataclasses import replace

import pytest
from factories import (
    BASELINE,
    CPU,
    EXPERT,
    make_confirmation,
    make_failure,
    make_measurement,
    make_result,
    make_trial,
)

from autotune.report import headline, phase_rows
from autotune.result import StudyEnd
from autotune.statistics import Comparison, Estimate, Verdict


def test_faster_gives_both_rates_ratio_and_interval() -> None:
    text = headline(make_result())
    assert text.startswith(
        "Faster: 8.09 x (7.99 to 8.19) your samples per second: 3,404 samples/s (3,367 to 3,442) "
        "against 420.7 samples/s (413.1 to 428.3), over 3 interleaved rounds."
    )
    assert "Against the expert guess: 1.174 x" in text


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict.SAME, "as fast, within 2 %"),
        (Verdict.SLOWER, "slower when measured again"),
        (Verdict.UNSURE, "not clearly faster"),
    ],
)
def test_anything_but_faster_says_keep_your_settings(verdict: Verdict, words: str) -> None:
    confirmation = make_confirmation(best=(421.0, 424.0, 420.0), expert=None)
    text = headline(
        make_result(verdict=verdict, confirmation=confirmation, recommended=BASELINE, expert=None)
    )
    assert text.startswith("Keep your settings: ")
    assert words in text
    assert "over 3 interleaved rounds" in text


@pytest.mark.parametrize(
    ("value", "low", "high", "told"),
    [
        (1.15, 1.07, 1.23, True),
        (0.9, 0.85, 0.95, True),
        (1.15, 0.9, 1.4, False),
        (1.015, 1.01, 1.021, False),
    ],
)
def test_an_interval_beside_1_without_a_verdict_is_explained(
    value: float, low: float, high: float, told: bool
) -> None:
    confirmation = make_confirmation(best=(421.0, 424.0, 420.0), expert=None)
    unsure = Comparison(Estimate(value, low, high), Verdict.UNSURE, pairs=3)
    confirmation = replace(confirmation, versus_baseline=unsure)
    text = headline(
        make_result(
            verdict=Verdict.UNSURE, confirmation=confirmation, recommended=BASELINE, expert=None
        )
    )
    assert ("The interval shown is of 95 %; a verdict takes 99 %" in text) is told


def test_nothing_beat_the_baseline() -> None:
    made = make_result()
    text = headline(replace(made, best=made.baseline, confirmation=None, verdict=Verdict.SAME))
    assert text.startswith("Keep your settings: no other was faster, of 4 tried. They give 42")


def test_interrupted_right_after_the_baseline() -> None:
    made = make_result(confirmation=None, verdict=Verdict.UNSURE, ended=StudyEnd.INTERRUPTED)
    text = headline(replace(made, best=made.baseline, trials=(made.baseline,)))
    assert text.startswith(
        "Keep your settings: no other was tried before the study was interrupted. They give 42"
    )


def test_interrupted_is_not_confirmed() -> None:
    text = headline(
        make_result(confirmation=None, verdict=Verdict.UNSURE, ended=StudyEnd.INTERRUPTED)
    )
    assert text.startswith("Not confirmed: the study was interrupted")
    assert "8.2" in text


def test_best_is_the_expert_guess() -> None:
    made = make_result()
    assert made.expert is not None
    result = replace(made, best=made.expert, confirmation=make_confirmation(expert=None))
    assert headline(result).endswith("The expert guess is the best found.")
    assert [row.label for row in phase_rows(result)] == ["baseline", "best (expert guess)"]


def test_phase_rows_take_throughput_from_the_confirmation() -> None:
    rows = phase_rows(make_result())
    assert [row.label for row in rows] == ["baseline", "expert guess", "best"]
    assert [round(row.throughput.value) for row in rows if row.throughput] == [421, 2898, 3404]
    baseline = rows[0]
    phases = (baseline.data_ms, baseline.forward_ms, baseline.backward_ms, baseline.optimizer_ms)
    assert sum(value or 0.0 for value in phases) == pytest.approx(baseline.step_ms)


def test_a_failed_expert_has_no_figures() -> None:
    rows = phase_rows(
        make_result(expert=make_trial(1, outcome=make_failure(EXPERT)), confirmation=None)
    )
    assert rows[1].step_ms is None
    assert rows[1].throughput is None


def test_a_cpu_has_no_device_memory() -> None:
    trial = make_trial(0, outcome=make_measurement(device=CPU))
    assert phase_rows(make_result(baseline=trial))[0].device_memory_bytes is None


def test_others_that_could_not_be_measured() -> None:
    made = make_result()
    failed = make_trial(1, outcome=make_failure(EXPERT))
    text = headline(
        replace(made, best=made.baseline, confirmation=None, trials=(made.baseline, failed))
    )
    assert text.startswith("Keep your settings: no other could be measured, of 1 tried.")


def test_a_best_that_failed_in_the_confirmation() -> None:
    text = headline(make_result(confirmation=None, verdict=Verdict.UNSURE, recommended=BASELINE))
    assert text.startswith("Keep your settings: the best found could not be measured again.")


def test_one_round_is_too_few() -> None:
    confirmation = make_confirmation(baseline=(420.0,), best=(500.0,), expert=None)
    text = headline(make_result(verdict=Verdict.UNSURE, confirmation=confirmation))
    assert text.endswith("1.19 x your samples per second, in one round, too few to tell.")
