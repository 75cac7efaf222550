"""The real command in a process of its own, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"
LIMIT_S = 120.0
_MARK = "AUTOTUNE_TEST_MARK"

QUICK = (
    "device=cpu",
    "probe=quick",
    "probe.window_s=0.3",
    "probe.warmup_s=0.3",
    "probe.ceiling_s=0.1",
    "confirmation.max_rounds=3",
    "budget.minutes=3",
    "baseline.batch_size=8",
    *(f"search_space.{knob}=null" for knob in ("prefetch_factor", "compile", "channels_last")),
)
"""Words that make a study small: each trial takes a second or two."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        code: Its exit code.
        out: What it wrote to standard output.
        err: What it wrote to standard error.
    """

    code: int
    out: str
    err: str


# A shell starts what runs in its background with SIGINT ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Command:
    """A command that runs in a folder, its processes marked so that each can be found.

    Args:
        words: The words after `python -m autotune`.
        folder: Where it starts; its output goes into files there.
    """

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._files = [folder / f".{name}-{self._mark}" for name in ("out", "err")]
        environment = {
            **os.environ,
            _MARK: self._mark,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(JOBS)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with self._files[0].open("w") as out, self._files[1].open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autotune", *words],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # a group of its own, as a shell gives it
            )

    def ctrl_c(self) -> None:
        """Interrupt it as a terminal does: the whole foreground group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command itself."""
        self._process.send_signal(number)

    def end(self) -> Ended:
        """Wait for its end; afterwards nothing of it runs."""
        try:
            code = self._process.wait(LIMIT_S)
        finally:
            self._process.kill()
        left = self.processes_after(10.0)
        for process in left:
            process.kill()
        assert left == [], "processes outlived the command"
        out, err = (file.read_text() for file in self._files)
        for file in self._files:
            file.unlink()
        return Ended(code, out, err)

    def processes_after(self, patience_s: float) -> list[psutil.Process]:
        """Return what of it still runs once it had some seconds to go."""
        deadline = time.monotonic() + patience_s
        while (left := list(self._processes())) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get(_MARK) == self._mark:
                    yield process


def run(*words: str, folder: Path) -> Ended:
    """Run the command to its end."""
    return Command(words, folder).end()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something has come true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
