"""Whole studies by the real command on the CPU: their files, their runs, and how they are ended."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import pytest
from command import QUICK, Command, Ended, run, wait_until
from mlflow import MlflowClient
from mlflow.entities import Run

from autotune.export import load_tuned
from autotune.result import Role, TrialRecord
from autotune.search.records import load_records
from autotune.statistics import Verdict

pytestmark = pytest.mark.slow

TINY = ("model=tiny", "data=tiny", "data.samples=256", "search_space.precision=null")
OWN = (
    "data._target_=small.Rows",
    "loss._target_=small.scaled_loss",
    "+loss.scale=0.5",
    "data.collate._target_=small.collate",
)


@dataclass(frozen=True)
class Study:
    """A study by the command, in a folder that others share.

    Attributes:
        place: Folder that the command was started in.
        name: Name of the study.
        ended: How the command ended.
    """

    place: Path
    name: str
    ended: Ended

    @property
    def folder(self) -> Path:
        """The study's own folder."""
        return folder_of(self.place, self.name)

    @property
    def records(self) -> tuple[TrialRecord, ...]:
        return load_records(self.folder)

    def optuna_trials(self) -> list[optuna.trial.FrozenTrial]:
        return optuna_trials(self.folder, self.name)

    def parents(self) -> list[Run]:
        """MLflow's runs of the study, oldest first."""
        return self._runs(f"tags.study = '{self.name}'")

    def children(self, parent: Run) -> list[Run]:
        """The trials below a run, in their order."""
        return self._runs(f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")

    def _runs(self, which: str) -> list[Run]:
        client = store(self.place)
        experiment = client.get_experiment_by_name("autotune")
        assert experiment is not None
        found = client.search_runs([experiment.experiment_id], which, order_by=["start_time"])
        return list(found)


def folder_of(place: Path, name: str) -> Path:
    (folder,) = (place / "autotune_runs").glob(f"{name}-2*")
    return folder


def optuna_trials(folder: Path, name: str) -> list[optuna.trial.FrozenTrial]:
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}")
    return optuna.load_study(study_name=name, storage=storage).get_trials()


def store(place: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{place / 'autotune_runs' / 'mlflow.db'}")


def words(name: str, *more: str) -> list[str]:
    return [*QUICK, f"study.name={name}", *more]


def nothing_is_running(study: Study) -> bool:
    """Return whether both stores hold only ended trials."""
    trials = optuna_trials(study.folder, study.name)
    parents = study.parents()
    runs = parents + [child for parent in parents for child in study.children(parent)]
    return all(trial.state.is_finished() for trial in trials) and all(
        run.info.status != "RUNNING" for run in runs
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def whole(place: Path) -> Study:
    """A study of the default flow: baseline, expert guess, search, confirmation."""
    space = ("search_space.batch_size=[8,32]", "search_space.num_workers=[0,1]")
    ended = run(*words("whole", *TINY, *space, "budget.trials=2"), folder=place)
    return Study(place, "whole", ended)


@pytest.fixture(scope="module")
def own(place: Path) -> Study:
    """A user's own job, of which everything but the baseline fails in one way or another."""
    space = ("search_space.batch_size=[8,32,64]", "search_space.num_workers=[0,1]")
    job = (*OWN, "model._target_=small.build_large", "data._target_=small.NoWorkers")
    ended = run(
        *words("own", *job, *space, "search_space.precision=null", "search.guided_trials=0"),
        folder=place,
    )
    return Study(place, "own", ended)


def test_a_study_ends_well_and_its_settings_can_be_used(whole: Study) -> None:
    assert (whole.ended.code, whole.ended.err) == (0, "")
    tuned = load_tuned(whole.folder / "tuned.yaml")
    assert tuned.dataloader_kwargs()["batch_size"] == tuned.settings.batch_size
    assert tuned.evidence.search_trials == 3
    confirmed = [record for record in whole.records if record.role is Role.CONFIRMATION]
    assert tuned.evidence.confirmed == bool(confirmed)
    if tuned.evidence.verdict is not Verdict.FASTER:
        assert tuned.settings == whole.records[0].settings


def test_the_folder_holds_what_it_must_and_no_half_written_file(whole: Study) -> None:
    expected = {"tuned.yaml", "summary.md", "study.db", "study.lock", "facts.json", "trials"}
    assert {path.name for path in whole.folder.iterdir()} == expected | {
        "inspection",
        "mlflow_run_id",
    }
    roles = [record.role for record in whole.records]
    assert roles[:3] == [Role.BASELINE, Role.EXPERT, Role.SEARCH]
    assert set(roles[3:]) <= {Role.CONFIRMATION}
    for record in whole.records:
        trial = whole.folder / record.folder
        trace = record.measurement.trace if record.measurement is not None else None
        names = {"record.json", "log.txt"} | ({trace} if trace else set())
        assert {path.name for path in trial.iterdir()} == names
    assert f"baseline: {whole.records[0].settings.label()} " in whole.ended.out


def test_the_summary_tells_every_trial(whole: Study) -> None:
    summary = (whole.folder / "summary.md").read_text()
    for record in whole.records:
        assert f"\n| {record.number:03d} " in summary


def test_optunas_study_holds_the_trials_of_the_search(whole: Study) -> None:
    trials = whole.optuna_trials()
    searched = [record for record in whole.records if record.role is not Role.CONFIRMATION]
    told = {trial.user_attrs["record"]: trial for trial in trials}
    assert set(told) == {record.number for record in searched}
    for record in searched:
        trial = told[record.number]
        assert trial.state.name == record.state.name
        assert trial.params["batch_size"] == record.settings.batch_size
        assert trial.value == record.score


def test_mlflow_holds_a_finished_parent_and_a_flat_child_for_each_trial(whole: Study) -> None:
    (parent,) = whole.parents()
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["folder"] == str(whole.folder)
    assert parent.data.tags["verdict"] in set(Verdict)
    children = whole.children(parent)
    assert [int(child.data.tags["trial"]) for child in children] == [
        record.number for record in whole.records
    ]
    for child, record in zip(children, whole.records, strict=True):
        assert child.info.status == "FINISHED"
        assert child.data.params["batch_size"] == str(record.settings.batch_size)
        assert child.data.params["num_workers"] == str(record.settings.num_workers)
        assert child.data.metrics["samples_per_s"] == pytest.approx(record.score, rel=1e-5)
        assert {"data_ms", "forward_ms", "backward_ms", "optimizer_ms", "stall_ms"} <= set(
            child.data.metrics
        )
    assert nothing_is_running(whole)


def test_mlflow_holds_the_files(whole: Study) -> None:
    client = store(whole.place)
    (parent,) = whole.parents()
    files = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert files == {"tuned.yaml", "summary.md", "config.yaml", "environment.json"}
    traced = 0
    for child, record in zip(whole.children(parent), whole.records, strict=True):
        names = {file.path for file in client.list_artifacts(child.info.run_id)}
        trace = record.measurement.trace if record.measurement is not None else None
        assert names == {"record.json", "log.txt"} | ({trace} if trace else set())
        traced += trace is not None
    assert traced >= 2, "the yardsticks have a trace each"
    first = whole.records[0]
    assert first.measurement is not None
    path = client.download_artifacts(
        whole.children(parent)[0].info.run_id, str(first.measurement.trace)
    )
    with gzip.open(path) as trace_file:
        events = json.load(trace_file)["traceEvents"]
    assert any(event.get("name") == "autotune::forward" for event in events)


def test_without_a_terminal_the_lines_are_plain(whole: Study, own: Study) -> None:
    for study in (whole, own):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", study.ended.out)
        assert "Traceback" not in study.ended.out


def test_the_last_lines_say_where_everything_is(whole: Study) -> None:
    *_, settings, code, summary, runs, address = whole.ended.out.splitlines()
    assert settings == f"settings: {whole.folder / 'tuned.yaml'}"
    assert code.strip() == "in your code: autotune.load_tuned('tuned.yaml')"
    assert summary == f"summary:  {whole.folder / 'summary.md'}"
    command = shlex.split(runs.removeprefix("runs:"))
    store_uri = f"sqlite:///{whole.place / 'autotune_runs' / 'mlflow.db'}"
    assert command[:4] == ["mlflow", "ui", "--backend-store-uri", store_uri]
    assert re.search(r"then: http://127\.0\.0\.1:\d+/#/experiments/1/runs\?", address)


def test_a_users_own_job_goes_through_its_own_functions(own: Study) -> None:
    assert (own.ended.code, own.ended.err) == (0, "")
    (parent,) = own.parents()
    assert (parent.data.tags["model"], parent.data.tags["data"]) == ("build_large", "NoWorkers")
    first = own.records[0].measurement
    assert first is not None
    assert first.last_loss is not None
    assert first.last_loss < 1.0, "half of about log(4)"


def test_failed_trials_are_data_and_the_baseline_stays(own: Study) -> None:
    tuned = load_tuned(own.folder / "tuned.yaml")
    assert tuned.settings == own.records[0].settings
    assert "Keep your settings" in own.ended.out
    assert "the archive is open in another process" in own.ended.out
    baseline, *others = own.records
    assert baseline.score is not None
    for record in others:
        assert record.failure is not None
        lacks_memory = record.settings.batch_size > 16
        assert record.failure.failure == ("out_of_memory" if lacks_memory else "dataset_error")
    states = {trial.state.name for trial in own.optuna_trials()}
    assert states == {"COMPLETE", "FAIL", "PRUNED"}
    (parent,) = own.parents()
    failed = [run for run in own.children(parent) if "failure_kind" in run.data.tags]
    assert len(failed) == len(others)
    assert nothing_is_running(own)


def test_a_space_of_the_baseline_alone_means_keep_your_settings(place: Path) -> None:
    space = ("search_space.batch_size=[8]", "search_space.num_workers=[0]")
    study = Study(place, "same", run(*words("same", *TINY, *space), folder=place))
    assert (study.ended.code, study.ended.err) == (0, "")
    assert "Keep your settings: no other was tried." in study.ended.out
    (baseline,) = study.records
    assert load_tuned(study.folder / "tuned.yaml").settings == baseline.settings
    assert nothing_is_running(study)


def in_flight(place: Path, name: str) -> int | None:
    """Return the number of the trial that runs now; None when none does."""
    for folder in (place / "autotune_runs").glob(f"{name}-2*/trials/*"):
        if (folder / "log.txt").exists() and not (folder / "record.json").exists():
            return int(folder.name)
    return None


def start(place: Path, name: str, *more: str, until: int) -> Command:
    """Start a study of slow trials and return once it is at a trial."""
    slow = ("probe.window_s=1", "probe.rel_halfwidth=0.0001", "probe.profile=none")
    space = ("search_space.batch_size=[8,16]", "search_space.num_workers=[0,1]")
    command = Command(words(name, *TINY, *slow, *space, "budget.trials=3", *more), place)
    wait_until(lambda: in_flight(place, name) == until, f"trial {until} runs")
    return command


def test_a_killed_study_goes_on_where_it_was(place: Path) -> None:
    name, sampler_only = "killed", ("search.guided_trials=0", "search.expert_guess=false")
    command = start(place, name, *sampler_only, until=1)
    command.send(signal.SIGKILL)
    assert command.end().code == -signal.SIGKILL
    folder = folder_of(place, name)
    assert not (folder / "tuned.yaml").exists()
    record = folder / "trials" / "0000" / "record.json"
    before = record.read_bytes()
    (cut_off,) = [t for t in optuna_trials(folder, name) if not t.state.is_finished()]

    space = ("search_space.batch_size=[8,16]", "search_space.num_workers=[0,1]")
    resumed = run(
        *words(name, *TINY, *space, *sampler_only, "budget.trials=1", "study.resume=true"),
        folder=place,
    )
    study = Study(place, name, resumed)
    assert (resumed.code, resumed.err) == (0, "")
    assert "the study is continued: 1 trials are finished already" in resumed.out
    assert record.read_bytes() == before
    again = study.records[1].settings
    assert (again.batch_size, again.num_workers) == (
        cut_off.params["batch_size"],
        cut_off.params["num_workers"],
    )
    assert load_tuned(folder / "tuned.yaml").evidence.search_trials == 2
    assert [parent.info.status for parent in study.parents()] == ["KILLED", "FINISHED"]
    assert nothing_is_running(study)


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM"])
def test_one_interrupt_keeps_the_best_so_far(place: Path, how: str) -> None:
    name = f"interrupted-{how.lower()}"
    command = start(place, name, until=1)
    command.ctrl_c() if how == "ctrl-c" else command.send(signal.SIGTERM)
    study = Study(place, name, command.end())
    assert (study.ended.code, study.ended.err) == (0, "")
    assert "no other was tried before the study was interrupted" in study.ended.out
    tuned = load_tuned(study.folder / "tuned.yaml")
    assert tuned.evidence.confirmed is False
    assert tuned.settings == study.records[0].settings
    (parent,) = study.parents()
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["ended"] == "interrupted"
    assert nothing_is_running(study)


def test_an_interrupt_before_the_baseline_is_measured_leaves_nothing(place: Path) -> None:
    command = start(place, "early", until=0)
    command.ctrl_c()
    ended = command.end()
    assert (ended.code, ended.err) == (130, "interrupted\n")
    assert list((place / "autotune_runs").glob("early-*")) == []
    (parent,) = Study(place, "early", ended).parents()
    assert parent.info.status == "KILLED"


def test_a_second_interrupt_leaves_nothing_open_either(place: Path) -> None:
    command = start(place, "twice", "search.expert_guess=false", until=1)
    command.ctrl_c()
    time.sleep(0.05)
    command.ctrl_c()
    study = Study(place, "twice", command.end())
    # The trial ends and the result is written in a moment: the second may come before or after.
    stopped = study.ended.code == 130
    assert stopped or (study.folder / "tuned.yaml").exists()
    assert study.ended.err == ("interrupted\n" if stopped else "")
    (parent,) = study.parents()
    # It may also come between the last file and the end of the command.
    complete = (study.folder / "tuned.yaml").exists()
    assert parent.info.status in (("KILLED", "FINISHED") if stopped else ("FINISHED",))
    assert complete or parent.info.status == "KILLED"
    assert nothing_is_running(study)


def test_the_run_of_a_study_is_found_from_its_folder(whole: Study) -> None:
    run_id = (whole.folder / "mlflow_run_id").read_text().strip()
    found: Any = store(whole.place).get_run(run_id)
    assert found.data.tags["study"] == "whole"
