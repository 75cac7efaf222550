"""Opening an MLflow store: quickly, quietly, and without changing a database unasked."""

from __future__ import annotations

import logging
import os
import re
import shlex
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import TrackingError, root_cause

if TYPE_CHECKING:
    from mlflow import MlflowClient

MLFLOW_PORT = 5000
"""Port of `mlflow ui` unless it is told otherwise."""

PROBE_S = 10.0
"""Seconds that a store gets for its first answer."""

_ENVIRONMENT = {
    # MLflow's own defaults keep a call to a dead server waiting for minutes (mlflow issue 1760).
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    # A tuner neither talks to anyone unasked nor prints an address for each trial.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

_CUSTOM_MODELS = {"mlflow.experimentKind": "custom_model_development"}
"""Tells the UI of MLflow 3 that the experiment is one of training runs, so it need not guess."""

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


def store_uri(uri: str | None, output: Path) -> str:
    """Return the tracking URI to use: as given, or a SQLite file in the output folder.

    Raises:
        TrackingError: The folder's name cannot stand in a SQLite URI.
    """
    if uri is None:
        # SQLAlchemy ends the file name at a '?', and its versions differ in how they read a '%'.
        if bad := next((letter for letter in "?%" if letter in str(output)), None):
            raise TrackingError(
                f"output.dir: {output} holds a {bad!r}, which cannot stand in the URI of an SQLite "
                "store. Choose another folder, or another store with tracking.uri."
            )
        return f"sqlite:///{output / 'mlflow.db'}"
    path = uri.removeprefix("sqlite:///")
    if path != uri and not path.startswith(("/", "file:", ":memory:")):
        # Relative to the folder that the command starts in, and the same file from everywhere.
        return f"sqlite:///{Path(path).absolute()}"
    return uri


def is_database(uri: str) -> bool:
    """Return whether the store is a database that is opened directly, without a server."""
    return uri.partition(":")[0].partition("+")[0] in _DATABASES


def open_store(uri: str) -> MlflowClient:
    """Return a client of a store that has answered.

    Raises:
        TrackingError: The store does not answer in `PROBE_S`, cannot be written, or is a database
            with the tables of another version of MLflow.
    """
    _be_quiet()
    from mlflow import MlflowClient

    try:
        if is_database(uri):
            _within(PROBE_S, lambda: _check_database(uri))
            # Creating the tables of a new database may take longer than an answer.
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
        else:
            client = MlflowClient(tracking_uri=uri)
            _within(PROBE_S, lambda: client.search_experiments(max_results=1))
    except Exception as error:  # each kind of store has errors of its own
        raise cannot_use(uri, error) from error
    return client


def cannot_use(uri: str, error: BaseException) -> TrackingError:
    """Return the error to show when a store failed."""
    if isinstance(error, TrackingError):
        return error
    root = root_cause(error)
    # The plainest words are those of the system: "Connection refused", "No space left on device".
    cause = root if isinstance(root, (OSError, ImportError, sqlite3.Error)) else error
    reason = _hide_password(" ".join(str(cause).split()))[:300] or type(cause).__name__
    return TrackingError(
        f"tracking.uri: cannot use MLflow at {_hide_password(uri)}: {reason}. "
        "Start the server or make the folder writable, correct tracking.uri, or run with "
        "tracking=none."
    )


def experiment_id(client: MlflowClient, name: str, artifacts: Path | None) -> str:
    """Return the experiment's id; create it if it is new.

    Args:
        client: Client of the store.
        name: Name of the experiment.
        artifacts: Folder for the files of a new experiment; None: the server decides.

    Raises:
        TrackingError: The experiment was deleted.
    """
    found = client.get_experiment_by_name(name)
    if found is None:
        location = None if artifacts is None else artifacts.as_uri()
        return str(client.create_experiment(name, location, dict(_CUSTOM_MODELS)))
    if found.lifecycle_stage != "active":
        raise TrackingError(
            f"tracking.experiment: the experiment {name!r} was deleted. Restore it with `mlflow "
            f"experiments restore --experiment-id {found.experiment_id}`, or choose another name."
        )
    return str(found.experiment_id)


def view_command(uri: str, port: int) -> str | None:
    """Return the command that shows a database's runs; None for a server, which shows its own."""
    if not is_database(uri):
        return None
    command = f"mlflow ui --backend-store-uri {shlex.quote(_hide_password(uri))}"
    return command if port == MLFLOW_PORT else f"{command} --port {port}"


def view_address(uri: str, port: int, experiment: str, view: str) -> str:
    """Return the address of the table of runs, once the server or the command is running.

    Args:
        uri: The store's.
        port: Port of the command, where one is needed.
        experiment: Id of the experiment.
        view: Key of the view of the table, kept with the experiment.
    """
    root = f"http://127.0.0.1:{port}" if is_database(uri) else _hide_password(uri).rstrip("/")
    # Without its type, the UI of MLflow 3 shows its pages for language models, which hold no runs.
    query = f"workflowType=machine_learning&viewStateShareKey={view}"
    return f"{root}/#/experiments/{experiment}/runs?{query}"


def free_port() -> int:
    """Return MLflow's own port, or the next one that nothing listens on."""
    for port in range(MLFLOW_PORT, MLFLOW_PORT + 20):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    return MLFLOW_PORT


def _be_quiet() -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401  (it sets the levels of its own loggers)

    # What fails is reported by us, in one line and with what to do; not by tracebacks on screen.
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _check_database(uri: str) -> None:
    """Raise unless the database can be written and is empty or of this version of MLflow.

    MLflow upgrades a database of an older version without asking, which other users of it with an
    older MLflow do not survive.
    """
    import mlflow
    import sqlalchemy
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    if uri.startswith("sqlite:////"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # fails unless it can be written
        names = sqlalchemy.inspect(connection).get_table_names()
        found = MigrationContext.configure(connection).get_current_revision()
        connection.rollback()
    if not names:
        return
    scripts = ScriptDirectory(str(Path(mlflow.__file__).parent / "store" / "db_migrations"))
    expected = scripts.get_current_head()
    if found != expected:
        known = {script.revision for script in scripts.walk_revisions()}
        raise TrackingError(_other_schema(_hide_password(uri), found, expected, known))


def _other_schema(uri: str, found: str | None, expected: str | None, known: set[str]) -> str:
    """Return what to do about a database that is not of this version of MLflow."""
    import mlflow

    where, which = f"tracking.uri: the database {uri}", f"MLflow {mlflow.__version__}"
    another = "choose another one with tracking.uri or output.dir"
    if found is None:
        return f"{where} has the tables of another program; {another}."
    if found in known:
        return (
            f"{where} has the tables of an older MLflow (schema {found}; {which} needs "
            f"{expected}). Back it up and run `mlflow db upgrade {shlex.quote(uri)}`, after which "
            f"the older MLflow cannot use it, or {another}."
        )
    return (
        f"{where} has the tables of a newer MLflow (schema {found}, which {which} does not know). "
        f"Install that MLflow here, or {another}."
    )


def _within(limit_s: float, work: Callable[[], Any]) -> None:
    """Run `work`; raise what it raises, or TimeoutError when it takes longer than `limit_s`."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    # A daemon: some drivers wait for minutes and cannot be told to stop.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {limit_s:.0f} s")
    if raised:
        raise raised[0]


def _hide_password(text: str) -> str:
    return re.sub(r"(://[^\s:/@]*):[^\s/@]*@", r"\1:***@", text)
