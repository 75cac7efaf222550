"""What a preflight finds in a job before its search, put to real inspections and commands.

Each job trains as it is; what it cannot have is told in plain words and not tried.
"""

from __future__ import annotations

import multiprocessing

import pytest
from command import QUICK, run
from conftest import JOBS

from autotune.measurement import FindingCode, JobFacts, Preflight
from autotune.request import PreflightScope
from autotune.settings import Settings

PLAIN = Settings(batch_size=2)


@pytest.fixture
def inspect(launcher, ask):
    """Look at a job that may have up to 4 workers, and return what was found."""

    def look(spec, *, batch_sizes=(8, 16, 32), max_workers=4):
        scope = PreflightScope(batch_sizes=batch_sizes, max_workers=max_workers, limit_s=30.0)
        seen = launcher.inspect(ask(spec, PLAIN, preflight=scope))
        assert isinstance(seen, JobFacts), seen
        return seen.preflight

    return look


@pytest.fixture
def spawn(monkeypatch):
    """Have trials start their workers by spawn, as by another default of Python."""
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "spawn")


def only(preflight):
    (finding,) = preflight.findings
    return finding


def command(tmp_path, monkeypatch, *words):
    """Run the real command on a job of `jobs/`."""
    monkeypatch.setattr("command.JOBS", JOBS)
    return run(
        *QUICK,
        "model=custom",
        "model._target_=healthy.linear",
        "data=custom",
        "optimizer.lr=1e-6",
        "tracking=none",
        "search_space.batch_size=null",
        "search_space.persistent_workers=null",
        "search_space.precision=null",
        *words,
        folder=tmp_path,
    )


def test_a_healthy_job_has_no_finding(inspect, workload):
    """Control: nothing is found, and nothing is said."""
    assert inspect(workload()) == Preflight()


def test_a_healthy_job_has_no_finding_under_spawn(inspect, workload, spawn):
    """Control for 1: what can be imported can be sent, whatever the start method."""
    assert inspect(workload(), max_workers=1) == Preflight()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"data": "unusual.Unpickled"}, "data.dataset.transform is a lambda"),
        (
            {"collate": "unusual.unpickled_collate"},
            "data.collate is a function that was made inside another one",
        ),
    ],
)
def test_what_has_no_pickle_leaves_0_workers_where_it_must_be_sent(
    inspect, workload, spawn, parts, words
):
    """Fault 1: the lambda is named, and no worker is tried."""
    finding = only(inspect(workload(**parts)))
    assert finding.code is FindingCode.NOT_PICKLABLE
    assert words in finding.message
    assert finding.max_workers == 0


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="of the usual start")
@pytest.mark.parametrize(
    "parts", [{"data": "unusual.Unpickled"}, {"collate": "unusual.unpickled_collate"}]
)
def test_what_has_no_pickle_does_not_matter_to_forked_workers(inspect, workload, parts):
    """Control for 1: under fork nothing is sent."""
    assert inspect(workload(**parts)) == Preflight()


def test_the_job_itself_chooses_the_start_method(tmp_path, monkeypatch):
    """Faults 1 and 2: the study goes on without workers, says why, and exports none."""
    ended = command(
        tmp_path,
        monkeypatch,
        "data._target_=unusual.Spawning",
        "search_space.num_workers=[0,2]",
        "search_space.cudnn_benchmark=[false,true]",
        "search.expert_guess=false",
        "budget.trials=1",
    )
    assert ended.code == 0, ended
    assert "workers start by spawn here" in ended.out
    assert "data.dataset.transform is a lambda" in ended.out
    assert "num_workers=2 left out of the search: not picklable" in ended.out
    (tuned,) = tmp_path.rglob("tuned.yaml")
    assert "num_workers: 0" in tuned.read_text()
