"""What a call does besides taking time: kernels, operators, memory. Looked at after the timing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from autotune.measure.device import synchronize

_CALLS = 3
_COPIES = ("Memcpy", "Memset")


@dataclass(frozen=True)
class Work:
    """What one call does.

    Attributes:
        kernels: Kernels that ran on the device; None on a CPU, or where the profiler saw none.
        busy_s: Seconds that the device was busy with kernels and copies; None as above.
        operators: Operators (`aten::...`) that the call itself asks for, not those they are made
            of; code that a compiler generated is not among them.
    """

    kernels: float | None
    busy_s: float | None
    operators: float | None


def count_work(call: Callable[[], object], device: torch.device) -> Work:
    """Return what a call does, from a few calls under torch.profiler.

    Where the profiler cannot run (another one is active), nothing is known.
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    elif device.type == "xpu":
        activities.append(ProfilerActivity.XPU)
    # Kineto writes its own log to stderr, errors on a machine without a GPU among it; it looks at
    # this when a process first profiles.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    profiler = profile(activities=activities, acc_events=True)
    try:
        profiler.start()
    except RuntimeError:
        return Work(None, None, None)
    try:
        for _ in range(_CALLS):
            call()
        synchronize(device)
    finally:
        profiler.stop()
    events: list[Any] = list(profiler.events() or ())  # type: ignore[no-untyped-call]
    ran = [
        event
        for event in events
        if event.device_type != DeviceType.CPU and not event.is_user_annotation
    ]
    kernels = sum(not event.name.startswith(_COPIES) for event in ran)
    busy_us = sum(event.time_range.elapsed_us() for event in ran)
    operators = sum(_is_outermost(event) for event in events)
    return Work(
        kernels=kernels / _CALLS if kernels else None,
        busy_s=busy_us / _CALLS / 1e6 if kernels else None,
        operators=operators / _CALLS if operators else None,
    )


def memory_of(call: Callable[[], object], device: torch.device) -> int | None:
    """Return the bytes of device memory that a call takes at its peak, above what is there before.

    None on a CPU, where torch does not count. Resets the device's peak statistics.
    """
    if device.type == "cpu":
        return None
    synchronize(device)
    torch.accelerator.reset_peak_memory_stats(device)
    before = torch.accelerator.memory_allocated(device)
    call()
    synchronize(device)
    return torch.accelerator.max_memory_allocated(device) - before


def _is_outermost(event: Any) -> bool:
    if event.device_type != DeviceType.CPU or not event.name.startswith("aten::"):
        return False
    while (event := event.cpu_parent) is not None:
        if event.name.startswith("aten::"):
            return False
    return True
