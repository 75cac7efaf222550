"""What the device did in the labelled steps of a profiler trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from autotune.measurement import DeviceActivity, Phase

Event = dict[str, Any]

_DEVICE_WORK = ("kernel", "gpu_memset", "gpu_memcpy")
"""Categories that the profiler gives to what runs on a device, on CUDA, ROCm and XPU alike."""

_TO_DEVICE = ("Memcpy HtoD", "Memcpy M2D")
"""How the names of copies from the host begin: CUDA and ROCm, XPU."""

_TO_HOST = ("Memcpy DtoH", "Memcpy D2M")


def read_activity(trace: bytes) -> DeviceActivity | None:
    """Return what the device did for the labelled steps, or None if the trace does not tell.

    The device runs behind the host: at a moment's cut through the trace it still works for an
    earlier step. So its work is told by the launch it came from (the profiler gives both the same
    correlation number), and counts if that fell between the labels of `LabelTimer`.

    Args:
        trace: A Chrome trace as torch.profiler writes it, unpacked.
    """
    try:
        # Names in it may hold control characters and broken bytes (pytorch issue 136180).
        events: list[Event] = json.loads(trace.decode(errors="replace"), strict=False)[
            "traceEvents"
        ]
    except (ValueError, KeyError, TypeError):
        return None
    whole = [event for event in events if event.get("ph") == "X"]
    labels = [event for event in whole if event.get("cat") == "user_annotation"]
    ends = [_end(label) for label in labels if label["name"] == f"autotune::{Phase.OPTIMIZER}"]
    starts = [label["ts"] for label in labels if label["name"] == f"autotune::{Phase.DATA}"]
    if not ends or not starts:
        return None
    calls = [
        event
        for event in whole
        if str(event.get("cat", "")).endswith(("_runtime", "_driver"))
        and min(starts) <= event["ts"] <= max(ends)
    ]
    launched = {_correlation(call) for call in calls} - {None}
    work = [
        event
        for event in whole
        if event.get("cat") in _DEVICE_WORK and _correlation(event) in launched
    ]
    if not work:
        return None
    return _activity(work, waits=sum("Synchronize" in call["name"] for call in calls), n=len(ends))


def _activity(work: list[Event], *, waits: int, n: int) -> DeviceActivity:
    copies = [event for event in work if event["name"].startswith(_TO_DEVICE)]
    on_device = [event for event in work if not event["name"].startswith(_TO_DEVICE + _TO_HOST)]
    return DeviceActivity(
        kernels_per_step=sum(event["cat"] == "kernel" for event in work) / n,
        kernel_ms=_covered_ms(on_device) / n,
        copy_ms=_covered_ms(copies) / n,
        copy_pinned=_pinned(copies),
        synchronizations_per_step=waits / n,
    )


def _pinned(copies: Iterable[Event]) -> bool | None:
    copied = {"Pinned": 0, "Pageable": 0}
    for copy in copies:
        for kind in copied:
            if f"({kind} ->" in copy["name"]:
                copied[kind] += copy["args"].get("bytes", 0)
    return copied["Pinned"] > copied["Pageable"] if any(copied.values()) else None


def _covered_ms(work: Iterable[Event]) -> float:
    """Return the milliseconds in which at least one of them ran. Traces count microseconds."""
    return sum(end - start for start, end in _merged(work)) / 1e3


def _merged(work: Iterable[Event]) -> Iterator[tuple[float, float]]:
    spans = sorted((float(event["ts"]), _end(event)) for event in work)
    if not spans:
        return
    start, end = spans[0]
    for next_start, next_end in spans[1:]:
        if next_start > end:
            yield start, end
            start = next_start
        end = max(end, next_end)
    yield start, end


def _end(event: Event) -> float:
    return float(event["ts"]) + float(event["dur"])


def _correlation(event: Event) -> int | None:
    found: int | None = event.get("args", {}).get("correlation")
    return found
