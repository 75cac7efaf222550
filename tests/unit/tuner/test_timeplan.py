from __future__ import annotations

from dataclasses import replace

import pytest
from fake_landscape import failed, measured

from autotune.measurement import Costs, FailureKind, Outcome, StopReason
from autotune.result import Role, TrialRecord
from autotune.settings import Settings
from autotune.tuner.timeplan import TimePlan, as_minutes

PLAN = TimePlan(deadline_s=1000.0, rounds=3, limit_s=180.0, window_s=8.0, rel_halfwidth=0.01)
SETTINGS = Settings(batch_size=10)


def trial(total_s: float, outcome: Outcome | None = None) -> TrialRecord:
    return TrialRecord(
        number=0,
        role=Role.SEARCH,
        outcome=outcome or measured(SETTINGS, 100.0),
        score=100.0,
        infeasible=None,
        started_at=0.0,
        total_s=total_s,
        folder="",
    )


def test_a_trial_that_was_cut_short_by_racing_is_charged_its_whole_window() -> None:
    outraced = measured(SETTINGS, 100.0, StopReason.OUTRACED)  # its window took 0.8 s
    assert PLAN.cost_s(trial(20.0, outraced)) == pytest.approx(20 + 8 - 0.8)
    assert PLAN.cost_s(trial(20.0)) == 20
    assert PLAN.cost_s(trial(3.0, failed(SETTINGS, FailureKind.CRASH))) == 3


def test_a_window_that_was_repeated_is_charged_once() -> None:
    outcome = measured(SETTINGS, 100.0)
    elapsed_s = outcome.window.elapsed_s
    twice = replace(outcome, repeated_windows=1, costs=Costs(window_s=3 * elapsed_s))
    assert PLAN.cost_s(trial(20.0, twice)) == pytest.approx(20 - 2 * elapsed_s)


@pytest.mark.parametrize("best_s", [None, 10.0, 100.0])
def test_whether_a_trial_wins_or_loses_the_confirmation_fits(best_s: float | None) -> None:
    now_s = 500.0
    yardsticks = [trial(10.0), trial(20.0)]
    best = None if best_s is None else trial(best_s)
    limit_s = PLAN.trial_limit_s(now_s, yardsticks, best)
    after_s = now_s + limit_s
    # What is not measured yet takes 0.7 of its time again, with a tenth to spare in each round.
    won = after_s + PLAN.confirmation_s(yardsticks) + 1.1 * 3 * 0.7 * limit_s
    lost = after_s + PLAN.confirmation_s([*yardsticks, *([best] if best else [])])
    assert max(won, lost) == pytest.approx(PLAN.deadline_s)


def test_what_is_paid_once_is_not_reserved_again() -> None:
    once = Costs(ceiling_s=1.0, profile_s=2.0, loader_ceiling_s=4.0, guard_s=3.0, first_step_s=10.0)
    outcome = replace(measured(SETTINGS, 100.0), costs=once)
    assert PLAN.repeat_s(trial(30.0, outcome)) == pytest.approx(30 - 1 - 2 - 4 - 3 - 7)
    assert PLAN.repeat_s(trial(30.0)) == 30


def test_no_trial_takes_longer_than_the_limit_of_any_trial() -> None:
    assert PLAN.trial_limit_s(0.0, [trial(1.0)], None) == 180.0
    assert PLAN.hard_limit_s(0.0) == 180.0
    assert PLAN.hard_limit_s(900.0) == 100.0


def test_the_least_that_a_study_takes_leaves_time_for_one_more_setting() -> None:
    least_s = PLAN.least_s(10.0)
    limit_s = PLAN.trial_limit_s(PLAN.deadline_s - (least_s - 10.0), [trial(10.0)], None)
    assert limit_s >= 10.0


@pytest.mark.parametrize(("seconds", "minutes"), [(1, 0.5), (30, 0.5), (31, 1.0), (91, 2.0)])
def test_minutes_to_ask_for(seconds: float, minutes: float) -> None:
    assert as_minutes(seconds) == minutes


def test_a_window_that_must_be_sharper_is_reserved_longer() -> None:
    noisy = [0.08, 0.12, 0.1, 0.11, 0.09, 0.1, 0.09, 0.11]
    window = replace(
        measured(SETTINGS, 100.0).window, step_s=tuple(noisy), elapsed_s=0.8, steps_per_block=1
    )
    seen = window.throughput.relative_halfwidth
    assert seen is not None
    assert seen > 0.05
    record = trial(20.0, replace(measured(SETTINGS, 100.0), window=window))
    plan = replace(PLAN, rel_halfwidth=seen / 2)
    assert plan.repeat_s(record) == pytest.approx(20 + 3 * 0.8), "half the width: 4 x the time"
    assert PLAN.repeat_s(record) == pytest.approx(20 + 8 - 0.8), "no longer than the cap"
    assert replace(PLAN, rel_halfwidth=2 * seen).repeat_s(record) == 20
    capped = replace(window, stop=StopReason.TIME_CAP)
    record = trial(20.0, replace(measured(SETTINGS, 100.0), window=capped))
    assert PLAN.repeat_s(record) == 20, "it was as long as it can be already"
