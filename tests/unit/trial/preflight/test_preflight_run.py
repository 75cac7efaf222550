"""How the checks are run: bounded, and none can take the others with it."""

from __future__ import annotations

import time

import torch
from torch.utils.data import TensorDataset

from autotune.measurement import Finding, FindingCode, Preflight
from autotune.trial.preflight import run, run_preflight
from autotune.trial.preflight.look import CannotTell

ROWS = TensorDataset(torch.randn(64, 8), torch.arange(64) % 4)
FINDING = Finding(code=FindingCode.BATCH_SIZE_IGNORED, message="six", kept=("batch_size",))


def finds(look, found):
    found.add(FINDING)


def finds_and_hangs(look, found):
    found.add(FINDING)
    time.sleep(3600)


def raises(look, found):
    raise ValueError("no such image")


def cannot_tell(look, found):
    raise CannotTell("it is random")


def test_a_healthy_job_has_no_finding(look_at):
    assert run_preflight(look_at(ROWS)) == Preflight()


def test_what_a_check_cannot_tell_changes_nothing(look_at, monkeypatch):
    checks = (("one", raises), ("two", cannot_tell), ("three", finds))
    monkeypatch.setattr(run, "_CHECKS", checks)
    seen = run_preflight(look_at(ROWS))
    assert seen.findings == (FINDING,)
    assert seen.notes == (
        "six",
        "not checked: one: ValueError: no such image",
        "not checked: two: it is random",
    )


def test_a_check_that_hangs_keeps_what_it_found(look_at, monkeypatch):
    monkeypatch.setattr(run, "_CHECKS", (("hang", finds_and_hangs), ("later", finds)))
    seen = run_preflight(look_at(ROWS, limit_s=0.3))
    assert seen.findings == (FINDING,)
    assert seen.unchecked == ("hang: not done after 0.3 s", "later: no time left")


def test_no_more_workers_are_looked_at_than_an_earlier_check_left(look_at, monkeypatch):
    asked = []

    def limits(look, found):
        found.add(Finding(code=FindingCode.NOT_PICKLABLE, message="one", max_workers=1))

    def asks(look, found):
        asked.append(look.scope.max_workers)

    monkeypatch.setattr(run, "_CHECKS", (("a", asks), ("b", limits), ("c", asks)))
    run_preflight(look_at(ROWS, max_workers=4))
    assert asked == [4, 1]
