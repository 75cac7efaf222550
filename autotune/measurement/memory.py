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
        host_peak_bytes: Peak memory of the trial's process and its workers together, pages that
            they share counted once; an upper bound where they peaked at different times.
        oom_count: Times that the allocator ran out of memory.
        shm_bytes: Bytes in use in /dev/shm at the window's end, where workers hand over their
            batches; those of other programs are in it.
        largest_batch_bytes: Bytes of the largest batch that the loader gave.
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
