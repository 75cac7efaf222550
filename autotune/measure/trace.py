"""The profiled window: a few steps under torch.profiler, after the score and never inside it."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from autotune.measure.activity import read_activity
from autotune.measure.timers import LabelTimer
from autotune.measurement import DeviceActivity

logger = logging.getLogger(__name__)

WARMUP_STEPS = 1
"""Steps under the profiler before it records: the first one pays for its start."""

READ_MAX_BYTES = 100e6
"""Unpacked traces above this are kept but not looked into. Reading takes 0.15 s and 60 MB of memory
for each 10 MB; three steps of ResNet-50 on a GPU are 7 MB."""


@dataclass(frozen=True)
class Trace:
    """A recorded trace, or why there is none.

    Attributes:
        file: Path of the gzipped Chrome/Perfetto trace; None if it was not kept.
        note: What went wrong, in words; None if nothing did.
        activity: What the device did in it; None where that was not told.
    """

    file: Path | None
    note: str | None
    activity: DeviceActivity | None = None


def record_trace(
    step: Callable[[LabelTimer], object],
    *,
    device: torch.device,
    steps: int,
    file: Path,
    max_bytes: float,
) -> Trace:
    """Record `steps` training steps into `file`, after `WARMUP_STEPS` that are not kept.

    Shapes, stacks and memory are left out: they multiply the size and the overhead (pytorch issue
    133444, kineto issue 595).

    Args:
        step: Runs one training step and marks its phases on the timer.
        device: Device of the steps.
        steps: Steps to record.
        file: Target, ending in `.json.gz`.
        max_bytes: A larger file is removed again.
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    elif device.type == "xpu":
        activities.append(ProfilerActivity.XPU)
    timer = LabelTimer()
    try:
        with profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=WARMUP_STEPS, active=steps, repeat=1),
            on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(file)),
            acc_events=True,  # one cycle; without it torch warns of what it drops after that
        ) as profiler:
            for _ in range(WARMUP_STEPS + steps):
                timer.begin()
                step(timer)
                timer.end()
                profiler.step()
    except (RuntimeError, OSError) as error:
        file.unlink(missing_ok=True)
        return Trace(None, f"no trace: {error}")
    return _checked(file, device, steps, max_bytes)


def _checked(file: Path, device: torch.device, steps: int, max_bytes: float) -> Trace:
    if not file.is_file():
        return Trace(None, "no trace: the profiler recorded nothing (is another one active?)")
    size = file.stat().st_size
    if size > max_bytes:
        file.unlink()
        return Trace(
            None, f"no trace: {size / 1e6:.0f} MB is above probe.trace_max_mb={max_bytes / 1e6:g}"
        )
    with gzip.open(file, "rb") as stream:
        content = stream.read()
    readable = device.type != "cpu" and len(content) <= READ_MAX_BYTES
    activity = read_activity(content) if readable else None
    found = content.count(b'"autotune::forward"')
    note = f"the trace holds {found} of {steps} steps" if found < steps else None
    return Trace(file, note, activity)
