"""The study's folder: made or found, proven writable and locked before anything else happens."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from autotune.errors import OutputError, StudyError, config_error
from autotune.search.lock import LOCK, StudyLock

_STAMP = r"\d{8}-\d{6}(?:-\d+)?"

_SCAFFOLD = (LOCK, "facts.json", "mlflow_run_id")
"""Files that a study begins with; without a trial they are of no use."""

_LOG = "log.txt"


@contextmanager
def study_folder(output: Path, name: str, *, resume: bool, now: datetime) -> Iterator[Path]:
    """Make or find the folder of a study, `<output>/<name>-<YYYYmmdd-HHMMSS>`, and lock it.

    A new folder that holds nothing of use at the end is removed, so that a run that fails early
    leaves nothing behind.

    Args:
        output: Absolute folder of all studies.
        name: Name of the study.
        resume: Take the newest folder of that name instead of a new one.
        now: Time stamp of a new folder.

    Raises:
        ConfigError: The name does not fit a folder.
        OutputError: The folder cannot be made or written.
        StudyError: There is nothing to resume, or another tuner is at work on it.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise config_error("study.name", name, "letters, digits, '-', '_' and '.'")
    is_new_output = not output.exists()
    try:
        folder = _newest(output, name) if resume else _make(output, f"{name}-{now:%Y%m%d-%H%M%S}")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(None, "no permission to write")
    except OSError as error:
        raise OutputError(
            f"output.dir: cannot write to {output}: {error.strerror}. "
            "Choose another folder: output.dir=..."
        ) from None
    try:
        with StudyLock(folder):
            try:
                yield folder
            finally:
                if not resume and _holds_nothing(folder):
                    shutil.rmtree(folder, ignore_errors=True)
    finally:
        if is_new_output and output.is_dir() and not os.listdir(output):
            output.rmdir()


def _holds_nothing(folder: Path) -> bool:
    """Return whether no trial left anything in a folder, and the job printed nothing."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return all(
        path.name in _SCAFFOLD or (path.name == _LOG and path.stat().st_size == 0) for path in files
    )


def _newest(output: Path, name: str) -> Path:
    stamped = re.compile(re.escape(name) + "-" + _STAMP)
    found = [path for path in output.glob(f"{name}-*") if stamped.fullmatch(path.name)]
    folders = sorted(path for path in found if path.is_dir())
    if not folders:
        raise StudyError(
            f"study.resume: there is no study {name!r} in {output}. Start one with "
            "study.resume=false, or say where it is: study.name=... output.dir=..."
        )
    return folders[-1]


def _make(output: Path, name: str) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    # A second study of this name may begin in the same second.
    for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(2))):
        folder = output / (name + suffix)
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("counting never ends")
