"""What a killed trial leaves on disk and in shared memory, and what its log may take."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_BYTES = 1_000_000
"""A longer log of a trial loses its middle: it is kept, and stored with the run, for each trial."""

_GROWS_TO = 50 * LOG_BYTES
"""Bytes that the log of a running trial may reach before it is cut."""

_SHM = Path("/dev/shm")

_SEGMENT = re.compile(r"torch_(\d+)_")
"""How torch names its segments of shared memory: with the pid of the process that made them."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for all temporary files of one trial, gone with it, whatever its code left in it."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-trial-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_shared_memory(pids: Collection[int], shm: Path = _SHM) -> None:
    """Remove the shared memory that processes made, which have ended.

    Args:
        pids: Of those processes.
        shm: Where shared memory is.
    """
    with contextlib.suppress(OSError):
        for segment in shm.iterdir():
            made_by = _SEGMENT.match(segment.name)
            if made_by is not None and int(made_by[1]) in pids:
                with contextlib.suppress(OSError):
                    segment.unlink()


def bound(log: Path) -> None:
    """Cut the log of a running trial that writes without end; its beginning stays."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > _GROWS_TO:
            os.truncate(log, LOG_BYTES // 2)  # it appends, so it goes on from there


def shorten(log: Path) -> None:
    """Keep the beginning and the end of a log that has become too long to store for each trial."""
    with contextlib.suppress(OSError):
        if (size := log.stat().st_size) <= LOG_BYTES:
            return
        half = LOG_BYTES // 2
        with log.open("r+b") as file:
            file.seek(size - half)
            end = file.read()
            file.seek(half)
            file.write(b"\n\n[... %d bytes left out ...]\n\n" % (size - LOG_BYTES) + end)
            file.truncate()
