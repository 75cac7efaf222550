from dataclasses import replace

import pytest
from factories import BASELINE, BEST, make_measurement, make_result, make_trial

from autotune.cli.ending import Ending, ending
from autotune.measurement import NumericsReport
from autotune.report import markdown, numerics
from autotune.result import Role, StudyResult

CHECKED = NumericsReport(
    losses=(7.0, 6.0), reference=(7.0, 6.01), again=(7.0, 6.0), difference=0.004, tolerance=0.031
)


def study(report: NumericsReport | None, skipped: int | None = None) -> StudyResult:
    measured = replace(make_measurement(BEST, 3450), numerics=report, skipped_steps=skipped)
    return make_result(best=make_trial(2, outcome=measured))


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (CHECKED, "checked against fp32: losses within 0.4 % over 2 steps (allowed 3.1 %)"),
        (
            replace(CHECKED, reference=(7.0,), difference=1e-5),
            "checked against fp32: losses within <0.1 % over 1 step (allowed 3.1 %)",
        ),
        (
            NumericsReport(losses=(), unchecked="no time was left"),
            "numbers unchecked against fp32: no time was left",
        ),
        (
            NumericsReport(losses=(), failed="the loss is nan"),
            "not the numbers of fp32: the loss is nan",
        ),
        (None, "numbers unchecked: the guard did not run (numerics.guard=true turns it on)"),
    ],
)
def test_one_line_says_what_was_checked(report: NumericsReport | None, line: str) -> None:
    result = study(report)
    assert numerics(result) == (line,)
    assert f"## Numerics\n\n- {line}\n" in markdown(result, view=None)
    assert line in end(result).sentences


def test_skipped_steps_show_where_there_are_any() -> None:
    (_, line) = numerics(study(CHECKED, skipped=2))
    assert line.startswith("GradScaler skipped 2 of 40 timed steps (5 %)")
    assert len(numerics(study(CHECKED, skipped=0))) == 1


def test_the_users_own_settings_are_held_against_nothing() -> None:
    own = make_trial(0, outcome=make_measurement(BASELINE, 420))
    assert numerics(make_result(best=own)) == ()


def test_a_check_made_in_the_confirmation_counts() -> None:
    result = study(NumericsReport(losses=(), unchecked="no time was left"))
    later = replace(make_measurement(BEST, 3450), numerics=CHECKED)
    trials = (*result.trials, make_trial(9, Role.CONFIRMATION, later))
    (line,) = numerics(replace(result, trials=trials))
    assert line.startswith("checked against fp32")


def end(result: StudyResult) -> Ending:
    from pathlib import Path

    return ending(result, tuned=Path("t"), summary=Path("s"), view=None, address=None)
