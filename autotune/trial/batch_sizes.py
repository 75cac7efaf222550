"""How large the batches of a trial were: the peak of memory belongs to the widest one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from autotune.workloads.batch import batch_bytes, batch_size_of

VARYING = 1.1
"""From this ratio of widest to mean on, batches are said to vary. Fixed shapes have exactly 1."""


class BatchSizes:
    """Bytes of the batches that passed. Looks at shapes only: no copy, no waiting."""

    def __init__(self) -> None:
        self._count = 0
        self._total = 0
        self._largest = 0
        self._last: int | None = None

    @property
    def last_samples(self) -> int | None:
        """Samples of the batch that came last; None before the first one."""
        return self._last

    @property
    def largest_bytes(self) -> int | None:
        """Bytes of the largest batch; None before the first one."""
        return self._largest if self._count else None

    def add(self, batch: Any) -> None:
        """Count a batch."""
        size = batch_bytes(batch)
        self._last = batch_size_of(batch)
        self._count += 1
        self._total += size
        self._largest = max(self._largest, size)

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches as they are, and count each."""
        for batch in batches:
            self.add(batch)
            yield batch

    def note(self) -> str | None:
        """Return a note where batches vary in size, and None where they do not."""
        if not self._total or self._largest < VARYING * self._total / self._count:
            return None
        return (
            f"batches vary in size: the widest of {self._count} held "
            f"{self._largest * self._count / self._total:.1f} x the mean. Peak memory is that of "
            "the widest batch seen; leave room for a wider one"
        )
