"""A tuner may be started inside an MLflow run; what a trial's job logs is no part of that run."""

from __future__ import annotations

import os

_VARIABLES = (
    "MLFLOW_RUN_ID",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_ACTIVE_MODEL_ID",
    "MLFLOW_RUN_CONTEXT",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING",
)
"""What makes MLflow's own functions log into a run that is open elsewhere, or start a thread that
watches the machine. The address of the store stays: a job may load its model from there."""


def leave_outer_run() -> None:
    """Forget the run that this process was started in."""
    for name in _VARIABLES:
        os.environ.pop(name, None)
