"""How a process ended, told from exit codes and from files as the kernel writes them."""

from __future__ import annotations

import os
import signal
from collections import namedtuple
from pathlib import Path

import pytest

from autotune.measure import deaths
from autotune.measure.deaths import OomKills, ending, exit_code_of_a_child, lacks_memory, oom_kills

Usage = namedtuple("Usage", "total used free")


def kernel(folder: Path, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Write `/proc` and `/sys/fs/cgroup` into a folder."""
    proc, groups = folder / "proc", folder / "groups"
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return proc, groups


@pytest.mark.parametrize(
    ("cgroup", "files", "count"),
    [
        ("0::/a/b\n", {"groups/a/b/memory.events": "oom 3\noom_kill 2\n"}, 2),
        ("0::/of/the/host\n", {"groups/memory.events": "oom_kill 4\n"}, 4),
        (
            "4:memory,hugetlb:/job\n",
            {"groups/memory/job/memory.oom_control": "under_oom 0\noom_kill 1\n"},
            1,
        ),
        ("0::/\n", {"proc/vmstat": "pgfault 9\noom_kill 7\n"}, 7),
        ("0::/\n", {"proc/vmstat": "pgfault 9\n"}, None),
        (
            "0::/a\n",
            {"groups/a/memory.events": "oom_kill 0\n", "proc/vmstat": "oom_kill 7\n"},
            0,
        ),
    ],
)
def test_the_kernels_count_is_that_of_the_own_group(
    tmp_path: Path, cgroup: str, files: dict[str, str], count: int | None
) -> None:
    assert oom_kills(*kernel(tmp_path, cgroup, files)) == count


@pytest.mark.parametrize(("before", "after", "since"), [(2, 3, 1), (2, 2, 0), (None, 1, None)])
def test_only_what_was_killed_meanwhile_counts(
    monkeypatch: pytest.MonkeyPatch, before: int | None, after: int, since: int | None
) -> None:
    counts = iter([before, after])
    monkeypatch.setattr(deaths, "oom_kills", lambda: next(counts))
    assert OomKills().since() == since


@pytest.mark.parametrize(
    ("code", "killed", "memory", "words"),
    [
        (-signal.SIGKILL, 1, True, "the kernel killed 1 process(es) for lack of host memory"),
        (-signal.SIGKILL, 0, False, "its count of such kills did not rise"),
        (-signal.SIGKILL, None, False, "by whom is not known"),
        (-signal.SIGSEGV, 1, False, "was killed by SIGSEGV"),
        (3, 0, False, "ended by itself with exit code 3"),
        (None, 0, False, "how is not known"),
    ],
)
def test_sigkill_is_lack_of_memory_only_where_the_kernel_says_so(
    code: int | None, killed: int | None, memory: bool, words: str
) -> None:
    assert lacks_memory(code, killed) is memory
    assert words in ending(code, killed)


@pytest.mark.parametrize(("free", "memory"), [(1, True), (50, False)])
def test_a_bus_error_is_lack_of_memory_where_shared_memory_is_full(
    monkeypatch: pytest.MonkeyPatch, free: int, memory: bool
) -> None:
    monkeypatch.setattr(deaths.shutil, "disk_usage", lambda path: Usage(100, 100 - free, free))
    assert lacks_memory(-signal.SIGBUS, 0) is memory
    assert f"{free}% of /dev/shm is free" in ending(-signal.SIGBUS, 0)


def test_the_signal_of_a_child_that_was_not_waited_for_is_told() -> None:
    assert exit_code_of_a_child() is None
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert exit_code_of_a_child() == -signal.SIGTERM
    os.waitpid(child, 0)
