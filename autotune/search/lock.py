"""A lock that keeps two tuners from working on one study."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType

from autotune.durable import cannot_write
from autotune.errors import StudyError

LOCK = "study.lock"
"""Name of the file in the study's folder: who works on it, or who did last."""


class StudyLock:
    """Keeps a second tuner out of a study's folder while this one lives.

    The lock is the system's, so it goes away with the process, however that ends. Made in a moment:
    it imports nothing heavy and never waits.

    Raises:
        StudyError: Another process works on the study (the message tells which one), or the file
            system knows no locks.
        OutputError: The file of the lock cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        with ExitStack() as stack:
            try:
                # Neither truncated nor, by default, inherited: it may be another's. Unbuffered: a
                # full disk then says so once, at the write, not again when the file is closed.
                self._file = stack.enter_context(open(path, "ab+", buffering=0))
                self._take(folder)
                self._file.truncate(0)
                self._file.write(_ourselves().encode())
            except OSError as error:
                raise cannot_write(path, error, "Then run it again.") from error
            stack.pop_all()

    def _take(self, folder: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            raise StudyError(
                f"another autotune is at work on the study in {folder}{_holder(self._file.read())}."
                " Wait until it has ended, stop it, or start a new study with study.resume=false."
            ) from None
        except OSError as error:
            raise StudyError(
                f"the file system of {folder} has no locks ({error.strerror}), without which two "
                "tuners could spoil a study. Choose a folder on a local disk: output.dir=..."
            ) from error

    def __enter__(self) -> StudyLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


def _ourselves() -> str:
    now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": now}) + "\n"


def _holder(text: bytes) -> str:
    """Return who holds a lock by what its file says; it is empty for a moment at first."""
    try:
        found = json.loads(text)
        return f": process {found['pid']} on {found['host']}, since {found['started']}"
    except (ValueError, TypeError, KeyError):
        return ""
