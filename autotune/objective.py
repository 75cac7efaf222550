"""What is maximised, and what rules a measured setting out."""

from __future__ import annotations

from autotune.measurement import Measurement

MEMORY_HEADROOM = 0.92
"""Largest share of the device's memory that the allocator may hold. Above it, the first wider
batch, a validation pass or a neighbour ends the job (Lightning issues 8028 and 9625)."""


def score(measurement: Measurement) -> float:
    """Return the score of a measurement: throughput in samples/s, higher is better."""
    return measurement.window.samples_per_s


def infeasible(measurement: Measurement) -> str | None:
    """Return why a measured setting must not be used, or None when it may.

    Memory: allocator retries mean that the setting lives at the limit and pays for it in speed.
    The peak holds what a run holds: the optimizer's state, the widest batch seen and, where it was
    tried, the last batch of a pass.
    """
    memory = measurement.memory
    if memory.oom_count:
        return f"the device ran out of memory ({memory.oom_count} x), and the job went on"
    if memory.alloc_retries:
        return f"the allocator ran out of memory and retried {memory.alloc_retries} times"
    if memory.peak_reserved_bytes is not None and memory.total_bytes:
        share = memory.peak_reserved_bytes / memory.total_bytes
        if share > MEMORY_HEADROOM:
            return (
                f"{share:.0%} of device memory reserved, optimizer state and the widest batch seen "
                f"included; at most {MEMORY_HEADROOM:.0%} is safe"
            )
    return None
