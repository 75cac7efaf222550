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
    """Return why a measured setting must not be used, or None when it may."""
    numerics = measurement.numerics
    return lacks_memory(measurement) or (numerics.failed if numerics is not None else None)


def lacks_memory(measurement: Measurement) -> str | None:
    """Return why a measured setting uses too much memory, or None when it does not.

    Allocator retries mean that the setting lives at the limit and pays for it in speed.
    """
    memory = measurement.memory
    if memory.alloc_retries:
        return f"the allocator ran out of memory and retried {memory.alloc_retries} times"
    if memory.peak_reserved_bytes is not None and memory.total_bytes:
        share = memory.peak_reserved_bytes / memory.total_bytes
        if share > MEMORY_HEADROOM:
            return f"{share:.0%} of device memory reserved; at most {MEMORY_HEADROOM:.0%} is safe"
    return None
