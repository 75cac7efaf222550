"""How a process ended, and what the kernel counted meanwhile. No word of a log is read.

SIGKILL has no sender that can be asked. What can be is the kernel's own count of processes that it
killed for lack of memory: it rose during the trial, or it did not.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

_SHM = Path("/dev/shm")

_SHM_IS_FULL = 0.05
"""Below this share of free /dev/shm, a bus error counts as lack of it. Its pages are taken when
they are first written to, so a worker dies in the middle of a batch that still holds the rest."""


def oom_kills(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how many processes the kernel has killed for lack of memory so far.

    In the own control group, those below it included (`memory.events` in version 2,
    `memory.oom_control` in version 1, see cgroups(7)), or else on the whole machine
    (`/proc/vmstat`).

    Args:
        proc: Where procfs is.
        groups: Where control groups are.

    Returns:
        The count since the group was made, or since boot; None where none can be read.
    """
    counts = (_count(file) for file in (*_group_files(proc, groups), proc / "vmstat"))
    return next((count for count in counts if count is not None), None)


class OomKills:
    """Tells whether the kernel killed for lack of memory since this object was made."""

    def __init__(self) -> None:
        self._before = oom_kills()

    def since(self) -> int | None:
        """Return how many processes it killed meanwhile; None where it does not tell."""
        now = oom_kills()
        return None if now is None or self._before is None else max(0, now - self._before)


def lacks_memory(exit_code: int | None, killed: int | None) -> bool:
    """Return whether a process surely ended for lack of host memory or of /dev/shm.

    Args:
        exit_code: As `multiprocessing.Process.exitcode`; None where it is not known.
        killed: From `OomKills.since`.
    """
    if exit_code == -signal.SIGKILL:
        return bool(killed)
    free = _free_shm()
    return exit_code == -signal.SIGBUS and free is not None and free < _SHM_IS_FULL


def ending(exit_code: int | None, killed: int | None) -> str:
    """Return how a process ended and the evidence of why, as in `was killed by SIGKILL (...)`.

    Args:
        exit_code: As `multiprocessing.Process.exitcode`; None where it is not known.
        killed: From `OomKills.since`.
    """
    if exit_code is None:
        return "ended, how is not known"
    if exit_code >= 0:
        return f"ended by itself with exit code {exit_code}"
    if exit_code == -signal.SIGKILL:
        return f"was killed by SIGKILL ({_evidence(killed)})"
    if exit_code == -signal.SIGBUS and (free := _free_shm()) is not None:
        return (
            f"was killed by SIGBUS ({free:.0%} of /dev/shm is free; workers hand over their "
            "batches there, and a bus error is how its end shows)"
        )
    return f"was killed by {_name(-exit_code)}"


def exit_code_of_a_child() -> int | None:
    """Return the exit code of a child that has died of a signal and was not waited for yet.

    The child stays as it is, for whoever waits for it. None where there is none.
    """
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None or found.si_code == os.CLD_EXITED:
        return None
    return -found.si_status


def _evidence(killed: int | None) -> str:
    if killed is None:
        return "by whom is not known: the kernel's count of out-of-memory kills cannot be read here"
    if killed == 0:
        return "not by the kernel for lack of memory: its count of such kills did not rise"
    return f"the kernel killed {killed} process(es) for lack of host memory meanwhile"


def _group_files(proc: Path, groups: Path) -> Iterator[Path]:
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own = path.lstrip("/")
        # Within a container the path may be the host's, and the group be mounted as the root.
        if controllers == "":
            yield from (groups / own / "memory.events", groups / "memory.events")
        elif "memory" in controllers.split(","):
            folder = groups / "memory"
            yield from (folder / own / "memory.oom_control", folder / "memory.oom_control")


def _count(file: Path) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    words = (line.split() for line in lines)
    return next((int(pair[1]) for pair in words if pair[:1] == ["oom_kill"] and pair[1:]), None)


def _free_shm() -> float | None:
    try:
        usage = shutil.disk_usage(_SHM)
    except OSError:
        return None
    return usage.free / usage.total if usage.total else None


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
