import json
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from factories import BASELINE, ENVIRONMENT, make_measurement, make_result, make_trial
from mlflow import MlflowClient
from mlflow.entities import Run

from autotune.config import TrackingConfig
from autotune.errors import TrackingError
from autotune.measurement import NumericsReport
from autotune.result import Role, StudyResult
from autotune.tracking import NoTracker, make_tracker, mlflow_store
from autotune.tracking import mlflow as mlflow_tracker
from autotune.tracking.mlflow import MlflowTracker


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store's file without runs: making one takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    mlflow_store.open_store(f"sqlite:///{path}")
    return path


@pytest.fixture
def output(tmp_path: Path, empty_store: Path) -> Path:
    folder = tmp_path / "out put"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder


@pytest.fixture
def result(output: Path) -> StudyResult:
    made = make_result(str(output / "resnet50-1"))
    for trial in made.trials:
        folder = Path(made.folder) / trial.folder
        folder.mkdir(parents=True)
        (folder / "record.json").write_text("{}")
        if trial.measurement is not None and trial.measurement.trace is not None:
            (folder / trial.measurement.trace).write_bytes(b"trace")
    (Path(made.folder) / "summary.md").write_text("# Summary\n\nFaster")
    (Path(made.folder) / "tuned.yaml").write_text("schema_version: 1\n")
    return made


def started(output: Path, result: StudyResult) -> MlflowTracker:
    tracker = MlflowTracker(TrackingConfig(), output)
    tracker.start(result.study, result.folder, "seed: 0\n", ENVIRONMENT)
    return tracker


def artifacts(result: StudyResult) -> tuple[str, ...]:
    return tuple(str(Path(result.folder) / name) for name in ("tuned.yaml", "summary.md"))


def client_of(output: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{output / 'mlflow.db'}")


def runs_of(output: Path) -> tuple[list[Run], list[Run]]:
    """Return the parents and the children, the oldest first."""
    client = client_of(output)
    experiment = client.get_experiment_by_name("autotune")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    return (
        [run for run in runs if "mlflow.parentRunId" not in run.data.tags],
        [run for run in runs if "mlflow.parentRunId" in run.data.tags],
    )


def test_a_whole_study(output: Path, result: StudyResult, capfd: pytest.CaptureFixture) -> None:
    tracker = started(output, result)
    for trial in result.trials:
        tracker.log_trial(trial)
    tracker.finish(result, artifacts(result))

    (parent,), children = runs_of(output)
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == "resnet50"
    assert parent.data.metrics["samples_per_s"] == 3403.98
    assert parent.data.tags["verdict"] == "FASTER"
    assert parent.data.tags["mlflow.note.content"].startswith("# Summary")
    client = client_of(output)
    attached = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert attached == {"config.yaml", "environment.json", "tuned.yaml", "summary.md"}
    assert parent.info.artifact_uri.startswith((output / "mlartifacts").as_uri())
    curve = client.get_metric_history(parent.info.run_id, "best_so_far_samples_per_s")
    assert [point.step for point in curve] == [0, 1, 2, 3, 4]

    assert [run.info.run_name[:3] for run in children] == ["000", "001", "002", "003", "004"]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in children} == {"FINISHED"}
    best = children[2]
    assert best.data.params["compile"] == "reduce-overhead"
    assert best.info.end_time - best.info.start_time == 9500
    files = {file.path for file in client.list_artifacts(best.info.run_id)}
    assert files == {"record.json", "trace.json.gz"}
    assert capfd.readouterr() == ("", "")


def test_the_first_losses_are_a_curve(output: Path, result: StudyResult) -> None:
    report = NumericsReport(losses=(7.0, None, 5.0), reference=(7.0, 6.0, 5.5))
    measured = replace(make_measurement(), numerics=report)
    tracker = started(output, result)
    tracker.log_trial(make_trial(0, outcome=measured))
    _, (run,) = runs_of(output)
    client = client_of(output)
    losses = client.get_metric_history(run.info.run_id, "first_losses")
    assert [(point.step, point.value) for point in losses] == [(0, 7.0), (2, 5.0)]
    plain = client.get_metric_history(run.info.run_id, "first_losses_fp32")
    assert [(point.step, point.value) for point in plain] == [(0, 7.0), (1, 6.0), (2, 5.5)]


def test_the_confirmation_is_no_progress_of_the_search(output: Path, result: StudyResult) -> None:
    tracker = started(output, result)
    tracker.log_trial(result.trials[0])
    again = make_trial(1, Role.CONFIRMATION, make_measurement(BASELINE, 9999))
    tracker.log_trial(again)
    (parent,), _ = runs_of(output)
    curve = client_of(output).get_metric_history(parent.info.run_id, "best_so_far_samples_per_s")
    assert [point.step for point in curve] == [0]


def test_environment_is_an_artifact(output: Path, result: StudyResult) -> None:
    started(output, result)
    (parent,), _ = runs_of(output)
    folder = output / "mlartifacts" / parent.info.run_id / "artifacts"
    assert json.loads((folder / "environment.json").read_text())["usable_cpus"] == 16
    assert (folder / "config.yaml").read_text() == "seed: 0\n"


def test_failed_trials_are_failed_runs(output: Path, result: StudyResult) -> None:
    from factories import make_failure, make_trial

    from autotune.measurement import FailureKind

    tracker = started(output, result)
    tracker.log_trial(make_trial(9, outcome=make_failure(failure=FailureKind.CRASH)))
    _, (child,) = runs_of(output)
    assert child.info.status == "FAILED"
    assert child.data.tags["failure_kind"] == "crash"
    assert "samples_per_s" not in child.data.metrics


def test_an_active_run_of_the_environment_is_left_alone(
    output: Path, result: StudyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(output)
    foreign = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", foreign)
    tracker = started(output, result)
    tracker.log_trial(result.trials[0])
    tracker.finish(result, ())
    assert client.get_run(foreign).info.status == "RUNNING"
    assert not client.get_run(foreign).data.metrics


@pytest.mark.parametrize(("killed", "status"), [(True, "KILLED"), (False, "FAILED")])
def test_abort_closes_everything(
    output: Path,
    result: StudyResult,
    monkeypatch: pytest.MonkeyPatch,
    killed: bool,
    status: str,
) -> None:
    tracker = started(output, result)
    tracker.log_trial(result.trials[0])
    with monkeypatch.context() as broken:

        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        broken.setattr(MlflowClient, "log_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tracker.log_trial(result.trials[1])
    tracker.abort("Ctrl-C, twice", killed=killed)
    tracker.abort("again", killed=killed)
    tracker.finish(result, ())
    (parent,), children = runs_of(output)
    assert parent.info.status == status
    assert parent.data.tags["reason"] == "Ctrl-C, twice"
    assert [run.info.status for run in children] == ["FINISHED", status]


def test_abort_before_start_does_nothing(output: Path) -> None:
    tracker = MlflowTracker(TrackingConfig(), output)
    tracker.abort("nothing happened", killed=True)
    assert tracker.view() is None
    assert tracker.address() is None


def test_resume_closes_what_a_dead_process_left(output: Path, result: StudyResult) -> None:
    dead = started(output, result)
    dead.log_trial(result.trials[0])
    orphan = client_of(output).create_run(
        dead._parent.experiment, tags={"mlflow.parentRunId": dead._parent.run_id}
    )
    other = client_of(output).create_run(dead._parent.experiment)

    tracker = started(output, result)
    tracker.log_trial(result.trials[1])
    tracker.finish(result, ())
    client = client_of(output)
    first = client.get_run(dead._parent.run_id)
    assert first.info.status == "KILLED"
    assert "resumed" in first.data.tags["reason"]
    assert client.get_run(orphan.info.run_id).info.status == "KILLED"
    assert client.get_run(other.info.run_id).info.status == "RUNNING"  # not of this study
    parents, _ = runs_of(output)
    resumed = [run for run in parents if run.data.tags.get("resumed") == dead._parent.run_id]
    assert [run.info.status for run in resumed] == ["FINISHED"]


def test_resume_with_another_store(output: Path, result: StudyResult) -> None:
    (Path(result.folder) / mlflow_tracker.RUN_ID_FILE).write_text("0123456789abcdef\n")
    tracker = started(output, result)
    tracker.finish(result, ())
    (parent,), _ = runs_of(output)
    assert parent.info.status == "FINISHED"


def test_store_that_goes_away_loses_nothing(
    output: Path,
    result: StudyResult,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracker = started(output, result)
    calls = []

    def down(*_: object, **__: object) -> None:
        calls.append(1)
        raise ConnectionRefusedError(111, "Connection refused")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr(MlflowClient, "log_batch", down)
        for trial in result.trials[:3]:
            tracker.log_trial(trial)
    assert len(calls) == 1  # the store is left alone for a while
    assert len(caplog.records) == 1
    assert "Connection refused" in caplog.text
    tracker.finish(result, artifacts(result))
    (parent,), children = runs_of(output)
    assert parent.info.status == "FINISHED"
    assert [run.info.status for run in children] == ["FINISHED"] * 3
    assert all("samples_per_s" in run.data.metrics for run in children)


def test_store_is_tried_again_after_a_pause(
    output: Path, result: StudyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_tracker, "RETRY_PAUSE_S", 0.0)
    tracker = started(output, result)
    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "create_run", lambda *_, **__: 1 / 0)
        tracker.log_trial(result.trials[0])
    tracker.log_trial(result.trials[1])
    _, children = runs_of(output)
    assert [run.info.run_name[:3] for run in children] == ["000", "001"]


def test_store_that_stays_away_is_not_an_error(
    output: Path,
    result: StudyResult,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracker = started(output, result)
    for name in ("create_run", "log_batch", "set_tag", "search_runs", "set_terminated"):
        monkeypatch.setattr(MlflowClient, name, lambda *_, **__: 1 / 0)
    tracker.log_trial(result.trials[0])
    tracker.finish(result, artifacts(result))
    assert "1 trials are not in MLflow; their records are in" in caplog.text
    assert "the outcome is not in MLflow" in caplog.text


def test_a_file_that_cannot_be_stored_is_named(output: Path, result: StudyResult) -> None:
    tracker = started(output, result)
    shutil.rmtree(output / "mlartifacts")
    (output / "mlartifacts").write_text("in the way")
    tracker.log_trial(result.trials[2])
    _, (child,) = runs_of(output)
    assert child.info.status == "FINISHED"
    assert "samples_per_s" in child.data.metrics
    assert "trace.json.gz" in child.data.tags["files_not_stored"]


def test_long_note_ends_at_a_section(output: Path, result: StudyResult) -> None:
    sections = "\n\n".join(f"## Part {i}\n\n{'word ' * 200}" for i in range(20))
    (Path(result.folder) / "summary.md").write_text(f"# Summary\n\nFaster\n\n{sections}")
    tracker = started(output, result)
    tracker.finish(result, artifacts(result))
    (parent,), _ = runs_of(output)
    note = parent.data.tags["mlflow.note.content"]
    assert len(note) <= 5000
    assert note.endswith("word \n\nThe rest is in the artifact summary.md.")


def test_view_is_a_command_for_the_shell(output: Path, result: StudyResult) -> None:
    tracker = started(output, result)
    command = tracker.view()
    assert command is not None
    words = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert words[:4] == ["mlflow", "ui", "--backend-store-uri", f"sqlite:///{output}/mlflow.db"]


def test_address_opens_the_studys_runs_by_throughput(output: Path, result: StudyResult) -> None:
    tracker = started(output, result)
    tracker.log_trial(result.trials[0])
    (parent,), (child,) = runs_of(output)
    address = tracker.address() or ""
    assert f"viewStateShareKey={parent.info.run_id}" in address
    tags = client_of(output).get_experiment(parent.info.experiment_id).tags
    view = json.loads(tags[f"mlflow.sharedViewState.{parent.info.run_id}"])
    assert view["orderByKey"] == "metrics.`samples_per_s`"
    shown = client_of(output).search_runs([parent.info.experiment_id], view["searchFilter"])
    assert {run.info.run_id for run in shown} == {parent.info.run_id, child.info.run_id}
    for column in view["selectedColumns"]:
        kind, _, name = column.partition(".")
        assert name.strip("`") in getattr(child.data, kind)


def test_view_of_a_server_is_its_address() -> None:
    assert mlflow_store.view_command("http://host:5000", 5000) is None
    address = mlflow_store.view_address("http://me:secret@host:5000/", 5001, "7", "k")
    assert address.startswith("http://me:***@host:5000/#/experiments/7/runs")


def test_view_avoids_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setattr(mlflow_store, "MLFLOW_PORT", port)
        assert mlflow_store.free_port() > port
        command = mlflow_store.view_command("sqlite:////x/mlflow.db", port + 1)
        assert command == f"mlflow ui --backend-store-uri sqlite:////x/mlflow.db --port {port + 1}"


def refusal(output: Path, result: StudyResult, uri: str | None = None) -> str:
    tracker = MlflowTracker(TrackingConfig(uri=uri), output)
    with pytest.raises(TrackingError) as caught:
        tracker.start(result.study, result.folder, "", ENVIRONMENT)
    return str(caught.value)


def test_closed_port_fails_fast_with_the_uri(output: Path, result: StudyResult) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    text = refusal(output, result, f"http://user:secret@127.0.0.1:{port}")
    assert f"http://user:***@127.0.0.1:{port}" in text
    assert "Connection refused" in text
    assert "tracking=none" in text
    assert "secret" not in text


def test_server_that_never_answers(
    output: Path, result: StudyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_store, "PROBE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = refusal(output, result, f"http://127.0.0.1:{server.getsockname()[1]}")
    assert "no answer within" in text


def test_a_file_where_the_folder_should_be(tmp_path: Path, result: StudyResult) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "in the way" in (tmp_path / "file").read_text()
    text = refusal(tmp_path / "file", result)
    assert f"sqlite:///{tmp_path}/file/mlflow.db" in text
    assert "make the folder writable" in text


def test_a_file_that_is_no_database(tmp_path: Path, result: StudyResult) -> None:
    (tmp_path / "mlflow.db").write_text("not a database " * 100)
    assert "not a database" in refusal(tmp_path, result)


def test_a_database_that_cannot_be_written(output: Path, result: StudyResult) -> None:
    uri = f"sqlite:///file:{output / 'mlflow.db'}?mode=ro&uri=true"
    assert "readonly" in refusal(output, result, uri)


def test_a_store_of_another_schema_is_not_upgraded(output: Path, result: StudyResult) -> None:
    with sqlite3.connect(output / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'cfd24bdc0731'")
        database.execute("DROP TABLE jobs")
    text = refusal(output, result)
    assert "of an older MLflow (schema cfd24bdc0731" in text
    assert f"mlflow db upgrade 'sqlite:///{output}/mlflow.db'" in text
    with sqlite3.connect(output / "mlflow.db") as database:
        assert database.execute("SELECT * FROM alembic_version").fetchall() == [("cfd24bdc0731",)]


def test_a_store_of_a_newer_schema_is_not_to_be_upgraded(output: Path, result: StudyResult) -> None:
    with sqlite3.connect(output / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    text = refusal(output, result)
    assert "of a newer MLflow (schema ffffffffffff" in text
    assert "Install that MLflow here" in text
    assert "mlflow db upgrade" not in text


def test_a_database_of_another_program_is_left_alone(tmp_path: Path, result: StudyResult) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("CREATE TABLE mine (x)")
    assert "of another program" in refusal(tmp_path, result)


def test_deleted_experiment(output: Path, result: StudyResult) -> None:
    client = client_of(output)
    client.delete_experiment(client.create_experiment("autotune"))
    assert "mlflow experiments restore" in refusal(output, result)


def test_failure_at_the_start_leaves_no_open_run(
    output: Path, result: StudyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MlflowClient, "log_text", lambda *_, **__: 1 / 0)
    refusal(output, result)
    (parent,), _ = runs_of(output)
    assert parent.info.status == "FAILED"


@pytest.mark.parametrize("letter", ["?", "%"])
def test_folder_that_cannot_stand_in_a_uri(tmp_path: Path, letter: str) -> None:
    with pytest.raises(TrackingError, match=r"output\.dir"):
        make_tracker(TrackingConfig(), tmp_path / f"a{letter}b")


def test_relative_sqlite_uri_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = mlflow_store.store_uri("sqlite:///runs.db", tmp_path)
    assert uri == f"sqlite:///{tmp_path}/runs.db"
    assert mlflow_store.store_uri("http://host:1", tmp_path) == "http://host:1"


def test_tracking_none_imports_no_mlflow(tmp_path: Path) -> None:
    assert isinstance(make_tracker(TrackingConfig(kind="none"), tmp_path), NoTracker)
    code = (
        "import sys, pathlib; from autotune.tracking import make_tracker; "
        "from autotune.config import TrackingConfig; "
        "make_tracker(TrackingConfig(), pathlib.Path('/x')); "
        "print(any(name in sys.modules for name in ('mlflow', 'torch', 'sqlalchemy')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "False"
