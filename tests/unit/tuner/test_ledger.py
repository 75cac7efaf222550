from __future__ import annotations

from dataclasses import replace

from fake_landscape import failed, measured

from autotune.measurement import FailureKind, NumericsReport, Outcome, StopReason
from autotune.result import Role, TrialRecord
from autotune.settings import CompileMode, Settings
from autotune.tuner.ledger import Ledger

BASELINE = Settings(batch_size=32)
OTHER = Settings(batch_size=64)
COMPILED = Settings(batch_size=32, compile=CompileMode.DEFAULT)


def trial(
    number: int,
    outcome: Outcome,
    score: float | None = None,
    role: Role = Role.SEARCH,
    total_s: float = 10.0,
) -> TrialRecord:
    return TrialRecord(
        number=number,
        role=role,
        outcome=outcome,
        score=score,
        infeasible=None,
        started_at=0.0,
        total_s=total_s,
        folder="",
    )


def test_a_trial_that_an_ending_budget_cut_short_may_be_tried_again() -> None:
    record = trial(0, failed(COMPILED, FailureKind.TIME_LIMIT), total_s=50.0)
    resumed = Ledger()
    resumed.replay([record], limit_s=180.0)
    assert resumed.records == (record,)
    assert resumed.untried(COMPILED)
    live = Ledger()
    live.add(record)
    assert not live.untried(COMPILED)
    full = Ledger()
    full.replay([trial(0, failed(COMPILED, FailureKind.TIME_LIMIT), total_s=180.1)], limit_s=180.0)
    assert not full.untried(COMPILED)


def test_the_best_is_the_baseline_until_a_finished_trial_beats_it() -> None:
    ledger = Ledger()
    assert ledger.best is None
    baseline = trial(0, measured(BASELINE, 100.0), 100.0, Role.BASELINE)
    ledger.add(baseline)
    ledger.add(trial(1, measured(OTHER, 120.0, StopReason.OUTRACED), 120.0))
    assert ledger.best is baseline
    winner = trial(2, measured(COMPILED, 110.0), 110.0)
    ledger.add(winner)
    assert ledger.best is winner
    ledger.add(trial(3, measured(OTHER, 500.0), 500.0, Role.CONFIRMATION))
    assert ledger.best is winner
    assert ledger.next_number == 4


def test_a_failed_expert_is_known_but_no_yardstick() -> None:
    ledger = Ledger()
    ledger.add(trial(0, measured(BASELINE, 100.0), 100.0, Role.BASELINE))
    expert = trial(1, failed(OTHER, FailureKind.OUT_OF_MEMORY), role=Role.EXPERT)
    ledger.add(expert)
    assert ledger.expert is expert
    assert [record.number for record in ledger.yardsticks] == [0]
    assert ledger.searched == 1


def test_what_was_faster_and_learned_something_else_is_remembered() -> None:
    ledger = Ledger()
    assert ledger.rejected == []
    ledger.add(trial(0, measured(BASELINE, 100.0), 100.0, Role.BASELINE))
    other = NumericsReport(losses=(1.0,), failed="the loss is 2.5")
    slower = replace(measured(COMPILED, 90.0), numerics=other)
    faster = replace(measured(OTHER, 500.0), numerics=other)
    ledger.add(trial(1, slower))
    record = trial(2, faster)
    ledger.add(record)
    assert ledger.rejected == [record]
