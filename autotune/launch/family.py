"""All processes of a trial: what they use, what they are at, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

from autotune.launch.vigil import Use
from autotune.trial.child import STACKS_SIGNAL

END_S = 10.0
"""Seconds at most that killed processes are waited for."""

STACKS_S = 0.5
"""Seconds that a family has to write down where it is."""


class Family:
    """A trial's process and all that come from it.

    Those that left their parent, their group or their session are found as well: the trial adopts
    orphans while it lives, and whoever was seen once is remembered.

    Args:
        process: The trial's process; before it has started, the family is empty.
    """

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self._seen: dict[int, psutil.Process] = {}

    @property
    def _pid(self) -> int | None:
        return self._process.pid

    @property
    def pids(self) -> frozenset[int]:
        """Process ids of all members seen so far."""
        own = () if self._pid is None else (self._pid,)
        return frozenset((*own, *self._seen))

    def use(self) -> Use | None:
        """Return the processor time used so far; None where that cannot be told."""
        if self._pid is None:
            return None
        try:
            main = psutil.Process(self._pid).cpu_times()
        except psutil.Error:
            return None
        others_s = main.children_user + main.children_system
        for member in self._members():
            with contextlib.suppress(psutil.Error):
                others_s += sum(member.cpu_times()[:4])
        return Use(main_s=main.user + main.system, others_s=others_s)

    def stacks(self, log: Path) -> str | None:
        """Have every Python process of the trial write where it is into the log; return that.

        Args:
            log: Where the trial's error output goes.
        """
        if self._pid is None:
            return None
        try:
            begin = log.stat().st_size
        except OSError:
            return None
        for pid in (self._pid, *(member.pid for member in self._members())):
            if _catches(pid, STACKS_SIGNAL):
                with contextlib.suppress(OSError):
                    os.kill(pid, STACKS_SIGNAL)
        time.sleep(STACKS_S)
        with contextlib.suppress(OSError), log.open("rb") as file:
            file.seek(begin)
            return file.read(20_000).decode(errors="replace").strip() or None
        return None

    def end(self) -> None:
        """Kill all and wait for their end.

        The main process, once it has sent its record, waits for this, so that its family is still
        known. Workers that still give back gigabytes would disturb the next trial.
        """
        if self._process.pid is None:
            return
        members = self._members()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.exitcode is None:
            self._process.kill()  # it may not lead its group yet
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()
        self._process.join(END_S)
        deadline = time.monotonic() + END_S
        while any(map(_is_alive, members)) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _members(self) -> list[psutil.Process]:
        """Return all but the main process that may still be there, and remember them."""
        main = self._pid
        if main is None:
            return []
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            found += psutil.Process(main).children(recursive=True)
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if pid != main and os.getsid(pid) == main:
                    found.append(psutil.Process(pid))
        for member in (*self._seen.values(), *found):
            with contextlib.suppress(psutil.Error):
                found += member.children(recursive=True)
        for member in found:
            self._seen.setdefault(member.pid, member)
        return list(self._seen.values())


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (`SigCgt`, see proc_pid_status(5))."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)
