"""What every fault must leave as it was, and how a fault is put to a real trial."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from autotune.config import ProbeConfig, WorkloadSpec
from autotune.launch.local import LocalLauncher
from autotune.request import TrialRequest

JOBS = Path(__file__).parent / "jobs"
SHARED_MEMORY = Path("/dev/shm")
BOUND_S = 120
QUICK = ProbeConfig(window_s=0.4, warmup_s=0.4, ceiling_s=0.1, min_blocks=3)

_SETTLE_S = 5.0


@pytest.fixture(scope="package", autouse=True)
def own_temporary_folder(tmp_path_factory):
    """A folder for temporary files that only these tests and their trials use.

    Set before the first fork server starts, which keeps the environment of its start.
    """
    folder = tmp_path_factory.mktemp("temporary")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    old = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    yield folder
    tempfile.tempdir = before
    if old is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = old


@pytest.fixture(autouse=True)
def nothing_left(own_temporary_folder):
    """Fail a test that took too long, or left a process, shared memory or a temporary file."""

    def late(number, frame):
        raise TimeoutError(f"not over after {BOUND_S} s")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(BOUND_S)
    memory, files = set(SHARED_MEMORY.iterdir()), set(own_temporary_folder.rglob("*"))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)
    deadline = time.monotonic() + _SETTLE_S
    while (left := _left(memory, files, own_temporary_folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _left(memory, files, temporary):
    """Return what is new: processes of trials, segments of shared memory, temporary files."""
    return [
        *_trials(),
        *(str(path) for path in set(SHARED_MEMORY.iterdir()) - memory if _is_ours(path)),
        # multiprocessing keeps one folder for its sockets and removes it at our exit; torch makes
        # one for its compiler when the fork server imports it.
        *(
            str(path)
            for path in set(temporary.rglob("*")) - files
            if not str(path.relative_to(temporary)).startswith(("pymp-", "torchinductor_"))
        ),
    ]


def _trials():
    """Descendants that are neither the fork server nor multiprocessing's resource tracker."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.ppid() != os.getpid():
                found.append(" ".join(process.cmdline()))
        except psutil.NoSuchProcess:
            continue
    return found


def _is_ours(path):
    try:
        return path.stat().st_uid == os.getuid() and path.name.startswith(
            ("torch_", "psm_", "sem.")
        )
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def launcher(own_temporary_folder):
    launcher = LocalLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Build a quick trial's request for the CPU."""
    monkeypatch.syspath_prepend(str(JOBS))

    def build(workload, settings, **changes):
        values = {
            "workload": workload,
            "settings": settings,
            "probe": QUICK,
            "device": "cpu",
            "seed": 0,
            "folder": str(tmp_path),
            "limit_s": 60.0,
        }
        return TrialRequest(**{**values, **changes})

    return build


@pytest.fixture
def workload():
    """Name a job: a model and a dataset of a module in `jobs/`, the rest as plain as can be."""

    def named(model="healthy.linear", data="healthy.Numbers", collate=None, **options):
        return WorkloadSpec(
            model={"_target_": model},
            data={"_target_": data, **options},
            collate=None if collate is None else {"_target_": collate},
            loss={"_target_": "torch.nn.functional.cross_entropy"},
            optimizer={"_target_": "torch.optim.SGD", "lr": 1e-6},
        )

    return named
