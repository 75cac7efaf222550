"""Memory that a trial used: on the device, on the host, in /dev/shm."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import torch

from autotune.measurement import MemoryUse

_SHM = "/dev/shm"
"""Where workers of torch hand over their batches, under the sharing strategy usual on Linux."""


def memory_use(device: torch.device) -> MemoryUse:
    """Return peak memory since the process began. Does not wait for the device."""
    host, shm = host_peak_bytes(), shm_bytes()
    if device.type == "cpu":
        return MemoryUse(
            peak_allocated_bytes=None,
            peak_reserved_bytes=None,
            total_bytes=None,
            alloc_retries=None,
            host_peak_bytes=host,
            shm_bytes=shm,
        )
    module = torch.get_device_module(device)
    stats = module.memory_stats(device)
    return MemoryUse(
        peak_allocated_bytes=module.max_memory_allocated(device),
        peak_reserved_bytes=module.max_memory_reserved(device),
        total_bytes=module.get_device_properties(device).total_memory,
        alloc_retries=stats.get("num_alloc_retries"),
        host_peak_bytes=host,
        oom_count=stats.get("num_ooms"),
        shm_bytes=shm,
    )


def host_peak_bytes() -> int | None:
    """Return the peak memory of this process and its children; shared pages are counted once.

    What a process holds now is its proportional set size, since forked workers share most of their
    pages. To that comes what it had resident at its own peak beyond now (VmHWM less VmRSS, see
    proc_pid_status(5)), which the kernel keeps without anyone watching. Where processes peak at
    different times, the sum is an upper bound. Children that have ended are not in it.
    """
    total = 0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            full = process.memory_full_info()
        except psutil.Error:
            continue
        total += (getattr(full, "pss", 0) or full.rss) + _above_now(process.pid)
    return total or None


def shm_bytes() -> int | None:
    """Return the bytes in use in /dev/shm, by whomever; None where there is none."""
    try:
        return shutil.disk_usage(_SHM).used
    except OSError:
        return None


def _above_now(pid: int) -> int:
    """Return how much more a process had resident at its peak than now, 0 if nobody tells."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    kibibytes = {
        name: int(value.split()[0])
        for name, _, value in (line.partition(":") for line in lines)
        if name in ("VmHWM", "VmRSS")
    }
    if len(kibibytes) < 2:
        return 0  # a process that is ending has neither
    return max(0, kibibytes["VmHWM"] - kibibytes["VmRSS"]) * 1024
