"""Memory that a trial used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Memory of a trial. Device figures are None on a CPU.

    Attributes:
        peak_allocated_bytes: Peak memory of tensors on the device.
        peak_reserved_bytes: Peak memory that the caching allocator held.
        total_bytes: Memory of the device.
        alloc_retries: Times that the allocator had to free its cache to go on.
        host_peak_bytes: Peak resident memory of the trial's process and its workers together.
        oom_count: Times that the allocator ran out of memory.
        shm_bytes: Bytes in use in /dev/shm, where workers hand over their batches.
        largest_batch_bytes: Bytes of the largest batch that was trained.
        tail_batch: Samples of the last, partial batch of a pass, trained once as well; None where
            there is none or it was not tried.
    """

    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    total_bytes: int | None
    alloc_retries: int | None
    host_peak_bytes: int | None
    oom_count: int | None = None
    shm_bytes: int | None = None
    largest_batch_bytes: int | None = None
    tail_batch: int | None = None
