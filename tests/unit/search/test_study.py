from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import StudyError
from autotune.measurement import FailureKind, StopReason
from autotune.result import TrialRecord
from autotune.search import study as module
from autotune.search.identity import StudyIdentity
from autotune.search.space import SearchSpace
from autotune.search.study import SearchStudy, open_study
from autotune.settings import Settings

Make = Callable[..., TrialRecord]
SPACE = SearchSpace(
    {"batch_size": (8, 16), "num_workers": (0, 1), "prefetch_factor": (2, 4)},
    Settings(batch_size=8),
)
IDENTITY = StudyIdentity(
    space=SPACE.text(),
    workload='{"model": {"_target_": "a.b"}}',
    baseline="{}",
    device="Test GPU",
    versions='{"torch": "2.9.0"}',
)
POINT = Settings(batch_size=16, num_workers=1, prefetch_factor=4)


def opened(folder: Path, identity: StudyIdentity = IDENTITY) -> SearchStudy:
    return open_study(folder, "s", SPACE, optuna.samplers.RandomSampler(seed=0), identity)


def trials(folder: Path) -> list[FrozenTrial]:
    storage = module._storage(folder / "study.db")
    return optuna.load_study(study_name="s", storage=storage).trials


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = optuna.storages.InMemoryStorage()
    monkeypatch.setattr(module, "_storage", lambda path: storage)


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("asked", [True, False])
def test_how_each_end_is_told(
    tmp_path: Path, make_measured: Make, make_failure: Make, asked: bool
) -> None:
    study = opened(tmp_path)
    records = [
        make_measured(POINT, 50.0, number=0),
        make_measured(POINT, 20.0, number=1, stop=StopReason.OUTRACED),
        make_measured(POINT, number=2, alloc_retries=1, infeasible="retried"),
        make_failure(POINT, FailureKind.OUT_OF_MEMORY, number=3),
        make_failure(POINT, FailureKind.CRASH, number=4),
    ]
    for record in records:
        if asked:
            study.tell(study.ask()[0], record)
        else:
            study.add(record)
    told = trials(tmp_path)
    assert [(trial.state, trial.value, trial.constraints) for trial in told] == [
        (TrialState.COMPLETE, 50.0, {"memory": -1.0}),
        (TrialState.PRUNED, 20.0, {"memory": -1.0}),
        (TrialState.PRUNED, None, {"memory": 1.0}),
        (TrialState.PRUNED, None, {"memory": 1.0}),
        (TrialState.FAIL, None, {}),
    ]
    assert [trial.user_attrs["record"] for trial in told] == [0, 1, 2, 3, 4]
    if not asked:
        assert told[0].params == {"batch_size": 16, "num_workers": 1, "prefetch_factor": 4}


@pytest.mark.usefixtures("in_memory")
def test_what_is_outside_of_the_space_is_not_added(tmp_path: Path, make_measured: Make) -> None:
    study = opened(tmp_path)
    study.add(make_measured(Settings(batch_size=12)))
    assert trials(tmp_path) == []


@pytest.mark.usefixtures("in_memory")
def test_trials_that_are_not_run(tmp_path: Path) -> None:
    study = opened(tmp_path)
    study.skip(study.ask()[0], lacks_memory=True)
    study.skip(study.ask()[0], lacks_memory=False)
    _, cut_off = study.ask()
    assert study.end_running() == [cut_off]
    told = [(trial.state, trial.constraints) for trial in trials(tmp_path)]
    assert told == [
        (TrialState.PRUNED, {"memory": 1.0}),
        (TrialState.PRUNED, {"memory": -1.0}),
        (TrialState.FAIL, {}),
    ]


def test_a_resumed_study_is_brought_in_line_with_the_records(
    tmp_path: Path, make_measured: Make
) -> None:
    first = opened(tmp_path)
    trial, settings = first.ask()
    first.tell(trial, make_measured(settings, number=0))
    in_flight = first.ask()[1]
    unknown = next(point for point in SPACE.all() if point not in (settings, in_flight))

    again = opened(tmp_path)
    records = [make_measured(settings, number=0), make_measured(unknown, 70.0, number=1)]
    assert again.reconcile(records) == [in_flight]
    assert [trial.state for trial in trials(tmp_path)] == [
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.COMPLETE,
    ]
    assert again.reconcile(records) == []
    assert len(trials(tmp_path)) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "Other GPU"}, "device: was Test GPU, now Other GPU"),
        ({"versions": '{"torch": "2.10.0"}'}, "versions: torch was 2.9.0, now 2.10.0"),
        ({"workload": '{"model": {"_target_": "c.d"}}'}, "model._target_ was a.b, now c.d"),
    ],
)
@pytest.mark.usefixtures("in_memory")
def test_a_study_of_something_else_is_refused(
    tmp_path: Path, change: dict[str, str], words: str
) -> None:
    opened(tmp_path)
    with pytest.raises(StudyError) as caught:
        opened(tmp_path, replace(IDENTITY, **change))
    assert words in str(caught.value)
    assert "start a new study with study.resume=false" in str(caught.value)


def test_what_the_study_is_of_is_kept_in_it(tmp_path: Path) -> None:
    opened(tmp_path)
    storage = module._storage(tmp_path / "study.db")
    kept = optuna.load_study(study_name="s", storage=storage)
    assert kept.direction is optuna.study.StudyDirection.MAXIMIZE
    assert kept.user_attrs["space_fingerprint"] == SPACE.fingerprint()
    assert kept.user_attrs["workload"] == IDENTITY.workload
    assert kept.user_attrs["versions"] == IDENTITY.versions


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("this is no database, whatever its name says")
    with pytest.raises(StudyError, match=r"study\.db cannot be used"):
        opened(tmp_path)


def test_a_database_that_breaks_under_way_is_told_as_such(tmp_path: Path) -> None:
    study = opened(tmp_path)
    (tmp_path / "study.db").write_bytes(b"overwritten by something else" * 1000)
    with pytest.raises(StudyError, match=r"study\.db cannot be used any more: .*study\.resume"):
        study.ask()
