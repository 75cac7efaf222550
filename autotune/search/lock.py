"""A lock that keeps two tuners from working on one study."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import TracebackType
from typing import IO

from autotune.errors import StudyError

_LOCK = "study.lock"


class StudyLock:
    """Keeps a second tuner out of a study's folder while this one lives.

    The lock is the system's, so it goes away with the process, however that ends.

    Raises:
        StudyError: Another process works on the study.
    """

    def __init__(self, folder: Path) -> None:
        self._file: IO[str] = open(folder / _LOCK, "w")  # noqa: SIM115 (held until `close`)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StudyError(
                f"another autotune is at work on the study in {folder}. Wait until it has ended, "
                "or start a new study with study.resume=false."
            ) from None

    def __enter__(self) -> StudyLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
