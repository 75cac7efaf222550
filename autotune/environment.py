"""What this machine is: processors that may be used, memory, versions. Imports no framework."""

from __future__ import annotations

import functools
import math
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_PACKAGES = ("torch", "torchvision", "optuna", "mlflow", "numpy", "autotune")


@dataclass(frozen=True)
class DeviceInfo:
    """The device that trials run on, as seen from inside a trial's process.

    Attributes:
        kind: `cuda`, `xpu` or `cpu`.
        name: Name of the device or processor.
        memory_bytes: Total memory of the device; None for a CPU.
        capability: CUDA compute capability such as `9.0`; None elsewhere.
        native_bf16: bfloat16 in hardware, not emulated; None when it could not be told.
        compiler: `torch.compile` has what it needs (a C++ compiler, and Triton on CUDA).
    """

    kind: str
    name: str
    memory_bytes: int | None
    capability: str | None
    native_bf16: bool | None
    compiler: bool


@dataclass(frozen=True)
class Environment:
    """Stamp of the machine and the software, kept with every result.

    Attributes:
        platform: Operating system and kernel.
        python: Version of the interpreter.
        cpu: Model name of the processor.
        usable_cpus: Processors that this process may use: affinity and cgroup quota.
        logical_cpus: Processors that the machine has.
        memory_bytes: Memory of the machine, or the cgroup's limit where that is lower.
        start_method: Start method of DataLoader workers on this interpreter.
        packages: Installed version by distribution name.
    """

    platform: str
    python: str
    cpu: str
    usable_cpus: int
    logical_cpus: int
    memory_bytes: int | None
    start_method: str
    packages: Mapping[str, str]


def environment() -> Environment:
    """Return the stamp of this machine."""
    import multiprocessing

    return Environment(
        platform=platform.platform(),
        python=platform.python_version(),
        cpu=cpu_model(),
        usable_cpus=usable_cpus(),
        logical_cpus=os.cpu_count() or 1,
        memory_bytes=memory_limit_bytes(),
        start_method=multiprocessing.get_start_method(allow_none=True)
        or multiprocessing.get_all_start_methods()[0],
        packages={name: found for name in _PACKAGES if (found := _version(name)) is not None},
    )


def usable_cpus() -> int:
    """Return the number of processors that this process may keep busy, at least 1.

    The smaller of the affinity mask and the cgroup's CPU quota: `os.cpu_count()` counts the host.
    """
    allowed, quota = len(allowed_cpus()), cgroup_cpu_quota()
    return allowed if quota is None else max(1, min(allowed, math.floor(quota)))


def allowed_cpus() -> frozenset[int]:
    """Return the numbers of the processors that this process may run on, by its affinity mask."""
    if sys.platform == "linux":
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def cgroup_cpu_quota(root: Path = _CGROUP, own: Path = _OWN_CGROUPS) -> float | None:
    """Return the tightest CPU quota on this process in processors, or None without one."""
    quotas = [quota for folder in cpu_cgroups(root, own) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def cpu_cgroups(root: Path = _CGROUP, own: Path = _OWN_CGROUPS) -> tuple[Path, ...]:
    """Return the folders of the cgroups that limit this process's CPU time, its own one first.

    A quota of any ancestor holds as well. In a container the hierarchy usually begins with the
    container's own cgroup, and paths that `/proc/self/cgroup` tells in the host's terms are absent.

    Args:
        root: Where the cgroup file systems are mounted (v2, or the folder of the v1 ones).
        own: The file that names this process's cgroups, a line `id:controllers:path` each.
    """
    folders: list[Path] = []
    for line in (_read(own) or "0::/").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        base = root if not controllers else root / "cpu"
        if controllers and "cpu" not in controllers.split(","):
            continue
        inner = base / path.strip("/")
        folders += [inner, *(parent for parent in inner.parents if parent.is_relative_to(base))]
    found = [*folders, root, root / "cpu"]
    return tuple(folder for folder in dict.fromkeys(found) if folder.is_dir())


def _quota(cgroup: Path) -> float | None:
    """Return the quota of one cgroup in processors (v2, then v1), or None without one."""
    if text := _read(cgroup / "cpu.max"):
        quota, _, period = text.partition(" ")
        return None if quota == "max" else int(quota) / int(period or 100_000)
    quota_us = _read(cgroup / "cpu.cfs_quota_us")
    period_us = _read(cgroup / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or int(quota_us) <= 0:
        return None
    return int(quota_us) / int(period_us)


def memory_limit_bytes(root: Path = _CGROUP) -> int | None:
    """Return the memory that this process may use: the machine's, or the cgroup's if lower."""
    limits = []
    if text := _read(Path("/proc/meminfo")):
        for line in text.splitlines():
            if line.startswith("MemTotal:"):
                limits.append(int(line.split()[1]) * 1024)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        if (text := _read(root / name)) and text != "max":
            limits.append(int(text))
    return min(limits) if limits else None


@functools.cache
def cpu_model() -> str:
    """Return the processor's model name, or the architecture where it is not told."""
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
