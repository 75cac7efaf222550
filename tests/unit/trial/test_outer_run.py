import os
import subprocess
import sys

import pytest

from autotune.trial.outer_run import leave_outer_run

JOB = "import mlflow; run = mlflow.start_run(); print(run.info.run_id, run.info.experiment_id)"


def test_the_store_stays_and_the_run_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "0123")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "7")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    leave_outer_run()
    assert "MLFLOW_RUN_ID" not in os.environ
    assert "MLFLOW_EXPERIMENT_ID" not in os.environ
    assert os.environ["MLFLOW_TRACKING_URI"] == "http://host:5000"


def test_a_job_that_logs_does_not_touch_the_outer_run(tmp_path, monkeypatch):
    """Fault 61: MLFLOW_RUN_ID in the environment wins over everything that a job asks for."""
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(uri)
    outer = client.create_run(client.create_experiment("mine"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_RUN_ID", outer.info.run_id)
    assert _logged_to()[0] == outer.info.run_id  # left alone, the job is in our run
    leave_outer_run()
    run_id, experiment = _logged_to()
    assert run_id != outer.info.run_id
    assert experiment == "0"


def _logged_to():
    ended = subprocess.run(
        [sys.executable, "-c", JOB], capture_output=True, text=True, check=True, timeout=100
    )
    return ended.stdout.split()[:2]
