"""MLflow: one parent run a study, one child run a trial.

Everything goes through a client with explicit run ids. MLflow's active run, which the environment
variable MLFLOW_RUN_ID and other code in the process can set, is never used.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import TrackingConfig
from autotune.environment import Environment
from autotune.interrupts import held_interrupts
from autotune.result import Role, StudyResult, TrialRecord, TrialState
from autotune.tracking.content import result_content, run_name, trial_content
from autotune.tracking.limits import PARAM_LIMIT, TAG_LIMIT, Content, fit, fit_text
from autotune.tracking.mlflow_store import (
    cannot_use,
    experiment_id,
    free_port,
    is_database,
    open_store,
    store_uri,
    view_address,
    view_command,
)
from autotune.tracking.mlflow_view import STUDY_TAG, VIEW_TAG_PREFIX, study_view

if TYPE_CHECKING:
    from mlflow import MlflowClient

RUN_ID_FILE = "mlflow_run_id"
"""File in the study's folder with the id of its parent run: a resumed study closes that run."""

RETRY_PAUSE_S = 60.0
"""A store that failed is left alone for so long: a server that does not answer may cost half a
minute a call, and the budget is for trials."""

_PARENT_TAG = "mlflow.parentRunId"
_TRIAL_FILES = ("record.json", "log.txt")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Parent:
    client: MlflowClient
    experiment: str
    run_id: str
    folder: Path


class MlflowTracker:
    """Logs a study to MLflow; see `Tracker`.

    A store that goes away during the search costs nothing but a warning: trials are kept, and sent
    once it is back.

    Args:
        config: Where to.
        output: Absolute output folder; the default store and its artifacts lie in it.

    Raises:
        TrackingError: The output folder's name cannot stand in the store's URI.
    """

    def __init__(self, config: TrackingConfig, output: Path) -> None:
        self._experiment = config.experiment
        self._uri = store_uri(config.uri, output)
        self._artifacts = output / "mlartifacts" if is_database(self._uri) else None
        self._parent: _Parent | None = None
        self._view: str | None = None
        self._address: str | None = None
        self._children: dict[int, str] = {}
        self._pending: list[TrialRecord] = []
        self._retry_at = 0.0
        self._warned = False
        self._best: float | None = None

    def start(self, study: str, folder: str, config: str, environment: Environment) -> None:
        """Open the parent run; see `Tracker.start`."""
        client = open_store(self._uri)
        try:
            experiment = experiment_id(client, self._experiment, self._artifacts)
            resumed = _close_previous(client, Path(folder))
            tags = {"study": study, "folder": folder, STUDY_TAG: Path(folder).name} | _origin()
            if resumed is not None:
                tags["resumed"] = resumed
            with held_interrupts():  # a run that nobody knows would stay open
                run = client.create_run(
                    experiment,
                    tags=dict(fit(tags=tags).tags),
                    run_name=fit_text(study, PARAM_LIMIT),
                )
                self._parent = parent = _Parent(client, experiment, run.info.run_id, Path(folder))
            _write_run_id(parent)
            _set_view(parent)
            client.log_text(parent.run_id, config, "config.yaml")
            client.log_text(parent.run_id, _as_json(environment), "environment.json")
        except Exception as error:  # each kind of store has errors of its own
            self.abort("the store failed at the start", killed=False)
            raise cannot_use(self._uri, error) from error
        port = free_port()
        self._view = view_command(self._uri, port)
        self._address = view_address(self._uri, port, experiment, parent.run_id)

    def log_trial(self, trial: TrialRecord) -> None:
        """Log a finished trial; see `Tracker.log_trial`."""
        if self._parent is None:
            return
        self._pending.append(trial)
        if time.monotonic() >= self._retry_at:
            self._send_pending(self._parent)

    def finish(self, result: StudyResult, artifacts: tuple[str, ...]) -> None:
        """Log the outcome and close the parent run; see `Tracker.finish`."""
        parent = self._parent
        if parent is None:
            return
        self._send_pending(parent)
        try:
            content = result_content(result)
            note = _note(artifacts)
            tags = content.tags if note is None else {**content.tags, "mlflow.note.content": note}
            _log_content(parent.client, parent.run_id, content, tags)
            if not result.objective.is_plain:
                _set_view(parent, result.objective.key)
            _attach(parent.client, parent.run_id, [Path(path) for path in artifacts])
            _close(parent, "FINISHED", left_over="KILLED")
        except Exception as error:  # each kind of store has errors of its own
            _logger.warning("%s", cannot_use(self._uri, error))
            _logger.warning("the outcome is not in MLflow; it is in %s", parent.folder)
        if self._pending:
            _logger.warning(
                "%d trials are not in MLflow; their records are in %s",
                len(self._pending),
                parent.folder,
            )
        self._parent = None  # not before: interrupted half-way, it is for `abort` to close

    def abort(self, reason: str, *, killed: bool) -> None:
        """Close every open run as failed or killed; see `Tracker.abort`."""
        parent, self._parent = self._parent, None
        if parent is None:
            return
        status = "KILLED" if killed else "FAILED"
        try:
            parent.client.set_tag(parent.run_id, "reason", fit_text(reason, TAG_LIMIT))
            _close(parent, status, left_over=status, reason=reason)
        except Exception as error:  # each kind of store has errors of its own
            _logger.warning("%s", cannot_use(self._uri, error))

    def view(self) -> str | None:
        """Return the command that shows the runs; None before `start`, and with a server."""
        return self._view

    def address(self) -> str | None:
        """Return the address of the runs, once the command or server runs; None before `start`."""
        return self._address

    def _send_pending(self, parent: _Parent) -> None:
        while self._pending:
            try:
                self._send(parent, self._pending[0])
            except Exception as error:  # each kind of store has errors of its own
                self._retry_at = time.monotonic() + RETRY_PAUSE_S
                self._warn_once(error)
                return
            del self._pending[0]

    def _send(self, parent: _Parent, trial: TrialRecord) -> None:
        """Log one trial. May be called again after it failed half-way."""
        client, content = parent.client, trial_content(trial)
        run_id = self._children.get(trial.number)
        if run_id is None:
            run = client.create_run(
                parent.experiment,
                start_time=round(1e3 * trial.started_at),
                tags={_PARENT_TAG: parent.run_id, STUDY_TAG: parent.folder.name} | _origin(),
                run_name=run_name(trial),
            )
            run_id = self._children[trial.number] = run.info.run_id
        _log_content(client, run_id, content, content.tags)
        _attach(client, run_id, _files(parent.folder, trial))
        failed = trial.state is TrialState.FAILED
        client.set_terminated(
            run_id,
            "FAILED" if failed else "FINISHED",
            end_time=round(1e3 * (trial.started_at + trial.total_s)),
        )
        if trial.role is not Role.CONFIRMATION:
            self._log_best(parent, trial)

    def _log_best(self, parent: _Parent, trial: TrialRecord) -> None:
        """Log the search's progress, a curve on the parent's page."""
        if trial.score is not None and (self._best is None or trial.score > self._best):
            self._best = trial.score
        best = fit(metrics={f"best_so_far_{trial.metric}": self._best})
        for name, value in best.metrics.items():
            parent.client.log_metric(parent.run_id, name, value, step=trial.number)

    def _warn_once(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            _logger.warning(
                "%s The search goes on; trials are kept and sent when the store is back.",
                cannot_use(self._uri, error),
            )


def _set_view(parent: _Parent, score: str | None = None) -> None:
    view_key = f"{VIEW_TAG_PREFIX}{parent.run_id}"
    view = study_view(parent.folder.name, score)
    parent.client.set_experiment_tag(parent.experiment, view_key, view)


def _log_content(
    client: MlflowClient, run_id: str, content: Content, tags: Mapping[str, str]
) -> None:
    from mlflow.entities import Metric, Param, RunTag

    now_ms = round(1e3 * time.time())
    metrics = [Metric(name, value, now_ms, 0) for name, value in content.metrics.items()]
    metrics += [
        Metric(name, value, now_ms, step)
        for name, values in content.curves.items()
        for step, value in enumerate(values)
        if value is not None
    ]
    client.log_batch(
        run_id,
        metrics=metrics,
        params=[Param(name, value) for name, value in content.params.items()],
        tags=[RunTag(name, value) for name, value in tags.items()],
    )


def _attach(client: MlflowClient, run_id: str, files: list[Path]) -> None:
    """Attach files. One that cannot be stored is named in a tag: numbers matter more than files."""
    lost = []
    for file in files:
        try:
            client.log_artifact(run_id, str(file))
        except Exception as error:  # each kind of store has errors of its own
            lost.append(f"{file}: {error}")
    if lost:
        client.set_tag(run_id, "files_not_stored", fit_text("\n".join(lost), TAG_LIMIT))
        _logger.warning("not stored in MLflow: %s", "; ".join(lost))


def _files(study: Path, trial: TrialRecord) -> list[Path]:
    names = list(_TRIAL_FILES)
    if trial.measurement is not None and trial.measurement.trace is not None:
        names.append(trial.measurement.trace)
    return [path for name in names if (path := study / trial.folder / name).is_file()]


def _note(artifacts: tuple[str, ...]) -> str | None:
    """Return the text of the Markdown file among the artifacts: the UI shows it on the run."""
    for path in map(Path, artifacts):
        if path.suffix == ".md":
            text = fit_text(path.read_text(encoding="utf-8"), 10 * TAG_LIMIT)
            if len(text) <= TAG_LIMIT:
                return text
            rest = f"\n\nThe rest is in the artifact {path.name}."
            return text[: TAG_LIMIT - len(rest)].rpartition("\n\n## ")[0] + rest
    return None


def _close(parent: _Parent, status: str, *, left_over: str, reason: str | None = None) -> None:
    """Close the parent run, and before it each child that is still open."""
    client = parent.client
    for run in client.search_runs(
        [parent.experiment],
        f"tags.`{_PARENT_TAG}` = '{parent.run_id}' and attributes.status = 'RUNNING'",
    ):
        if reason is not None:
            client.set_tag(run.info.run_id, "reason", fit_text(reason, TAG_LIMIT))
        client.set_terminated(run.info.run_id, left_over)
    client.set_terminated(parent.run_id, status)


def _close_previous(client: MlflowClient, folder: Path) -> str | None:
    """Close what an earlier session of this study left open; return its run's id, if any."""
    try:
        run_id = (folder / RUN_ID_FILE).read_text().strip()
    except FileNotFoundError:
        return None
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException:  # another store, or deleted: nothing of it is open here
        return run_id
    if run.info.status == "RUNNING":
        earlier = _Parent(client, run.info.experiment_id, run_id, folder)
        reason = "its process is gone; the study was resumed"
        client.set_tag(run_id, "reason", reason)
        _close(earlier, "KILLED", left_over="KILLED", reason=reason)
    return run_id


def _write_run_id(parent: _Parent) -> None:
    temporary = parent.folder / f".{RUN_ID_FILE}.{os.getpid()}"
    temporary.write_text(parent.run_id + "\n")
    os.replace(temporary, parent.folder / RUN_ID_FILE)


def _origin() -> dict[str, str]:
    """Return the tags that the UI shows as user and source of a run."""
    import getpass

    tags = {"mlflow.source.name": "autotune", "mlflow.source.type": "LOCAL"}
    try:
        tags["mlflow.user"] = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return tags
    return tags


def _as_json(environment: Environment) -> str:
    return json.dumps(asdict(environment), indent=2) + "\n"
