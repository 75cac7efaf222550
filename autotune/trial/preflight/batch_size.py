"""Does the size of the batches follow the batch size?

A collate function may cut, pad or pack to a size of its own; a dataset may fetch whole batches as
it likes (`__getitems__`). Then every batch size costs the same, and the largest is no better.
"""

from __future__ import annotations

import contextlib

from autotune.loader import one_pass
from autotune.measurement import Finding, FindingCode
from autotune.trial.preflight.found import Found
from autotune.trial.preflight.look import Look
from autotune.workloads.batch import batch_size_of

_SMALL = 4
_READ_S = 1.0
"""Seconds that reading the larger batch may take, about."""

_FOLLOWS = 0.5
"""Share of its growth that a batch must have. Samples that a collate function leaves out, or graphs
of several sizes, make batches uneven; a fixed size does not grow at all."""


def check_batch_size(look: Look, found: Found) -> None:
    """Compare a small batch with the largest one that is quickly read."""
    started = look.clock()
    small = min(_SMALL, look.samples or _SMALL)
    of_small = _size_of_first(look, small)
    per_sample_s = (look.clock() - started) / small
    large = _large(look, small, per_sample_s)
    if large < 2 * small or of_small is None:
        return
    of_large = _size_of_first(look, large)
    if of_large is None or of_large >= _FOLLOWS * of_small * large / small:
        return
    found.add(
        Finding(
            code=FindingCode.BATCH_SIZE_IGNORED,
            message=(
                f"the batch size is not obeyed: {large} were asked for and a batch of {of_large} "
                f"came ({small} gave {of_small}). batch_size is not searched, the rest is; what "
                "makes the batches (data.collate, or the dataset) has a size of its own"
            ),
            kept=("batch_size",),
        )
    )


def _large(look: Look, small: int, per_sample_s: float) -> int:
    most = max(4 * small, int(_READ_S / max(per_sample_s, 1e-6)))
    if look.samples is not None:
        most = min(most, look.samples)
    return max((size for size in look.scope.batch_sizes if size <= most), default=min(16, most))


def _size_of_first(look: Look, batch_size: int) -> int | None:
    """Return the samples in the first batch; None for a stream that has no second one."""
    with contextlib.closing(one_pass(look.loader(batch_size))) as batches:
        size = batch_size_of(next(batches))
        if look.is_stream and next(batches, None) is None:
            return None
        return size
