"""The profiled window: a few steps under torch.profiler, after the score and never inside it."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from autotune.measure.timers import LabelTimer

logger = logging.getLogger(__name__)

WARMUP_STEPS = 1
"""Steps under the profiler before it records: the first one pays for its start."""


@dataclass(frozen=True)
class Trace:
    """A recorded trace, or why there is none.

    Attributes:
        file: Path of the gzipped Chrome/Perfetto trace; None if it was not kept.
        note: What went wrong, in words; None if nothing did.
    """

    file: Path | None
    note: str | None


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
    return _checked(file, steps, max_bytes)


def _checked(file: Path, steps: int, max_bytes: float) -> Trace:
    if not file.is_file():
        return Trace(None, "no trace: the profiler recorded nothing (is another one active?)")
    size = file.stat().st_size
    if size > max_bytes:
        file.unlink()
        return Trace(
            None, f"no trace: {size / 1e6:.0f} MB is above probe.trace_max_mb={max_bytes / 1e6:g}"
        )
    with gzip.open(file, "rb") as stream:
        found = stream.read().count(b'"autotune::forward"')
    if found < steps:
        return Trace(file, f"the trace holds {found} of {steps} steps")
    return Trace(file, None)
