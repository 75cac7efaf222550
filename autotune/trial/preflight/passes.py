"""Are the passes over a stream alike: a second one, and with 0, 1 and 2 workers?

Each worker gets a copy of a stream. One that does not ask `torch.utils.data.get_worker_info()` for
its share delivers everything once per worker: more samples per second, and nothing more learned.
Map-style data come by index, whatever the workers; they have no such fault.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from autotune.loader import one_pass
from autotune.measurement import Finding, FindingCode
from autotune.trial.preflight.found import Found
from autotune.trial.preflight.look import CannotTell, Look
from autotune.workloads.batch import batch_size_of, fingerprint

_BATCH = 4
_SAMPLES = 2048
"""Samples of a stream that are looked at. A longer one is judged from its beginning."""

_PASS_S = 2.0
"""Seconds that a look at a pass may take, about."""

_REPEATED = 0.75
"""Share of the distinct batches that the beginning of a stream must keep with 2 workers: it keeps
all when the stream is shared out, and half when it is repeated."""

_VARYING = 1.5
"""How much more or less a pass with workers must have where passes vary by themselves; 2 workers
that repeat a stream double it."""

_FEW_LOST = 0.9
"""Share of its samples that a pass must keep. Sharing out by whole parts drops a few at the end."""


@dataclass(frozen=True)
class _Pass:
    """The beginning of a pass, or all of it.

    Attributes:
        samples: Samples seen.
        whole: Whether the pass ended.
        prints: Fingerprint of each batch.
    """

    samples: int
    whole: bool
    prints: tuple[str, ...]


def check_passes(look: Look, found: Found) -> None:
    """Go through a stream, or its beginning: twice without workers, then with 1 and 2.

    Raises:
        CannotTell: The beginning alone does not tell.
    """
    if not look.is_stream:
        return
    first = _read(look, 0)
    data = look.workload.dataset
    # A second pass over a long stream would be too long to wait for.
    once = not first.whole and iter(data) is iter(data)
    second = None if once else _read(look, 0)
    if second is None or not second.samples:
        found.add(_SECOND_PASS_EMPTY)
        return
    if first.whole and second.whole and first.samples == second.samples:
        found.samples_per_pass = first.samples
    for workers in range(1, min(2, look.scope.max_workers) + 1):
        finding = _compare(first, second, _read(look, workers), workers)
        if finding is not None:
            found.add(finding)
            return


def _read(look: Look, workers: int) -> _Pass:
    # With 2 workers that each deliver all, twice the samples come.
    most = _SAMPLES * max(1, workers)
    until_s = look.clock() + _PASS_S * max(1, workers)
    samples = 0
    prints: list[str] = []
    with contextlib.closing(one_pass(look.loader(_BATCH, workers=workers))) as batches:
        for batch in batches:
            samples += batch_size_of(batch)
            prints.append(fingerprint(batch))
            if samples >= most or look.clock() > until_s:
                return _Pass(samples, False, tuple(prints))
    return _Pass(samples, True, tuple(prints))


def _compare(first: _Pass, second: _Pass, seen: _Pass, workers: int) -> Finding | None:
    """Hold a pass with workers against two without."""
    if first.whole and second.whole:
        return _compare_samples(first.samples, second.samples, seen, workers)
    if workers == 1:
        return None
    count = min(len(each.prints) for each in (first, second, seen))
    alone = set(first.prints[:count])
    if first.prints[:count] != second.prints[:count] or len(alone) < count:
        raise CannotTell(
            "the stream is long, and its samples are drawn anew in each pass or come several times"
        )
    distinct = len(set(seen.prints[:count]))
    if distinct >= _REPEATED * count:
        return None
    return _repeated(
        f"the first {count} batches are {distinct} different ones with {workers} workers and "
        f"{count} without",
        workers,
    )


def _compare_samples(first: int, second: int, seen: _Pass, workers: int) -> Finding | None:
    most, least = max(first, second), min(first, second)
    # A pass that varies by itself has to differ by more.
    slack = 1.0 if most == least else _VARYING
    alone = f"{most} samples a pass without workers"
    if seen.samples > slack * most:
        more = "" if seen.whole else " or more"
        return _repeated(f"{seen.samples}{more} with {workers}, {alone}", workers)
    if seen.whole and slack * seen.samples < least:
        return _lost(f"{seen.samples} with {workers}, {alone}", seen.samples / least, workers)
    return None


def _repeated(figures: str, workers: int) -> Finding:
    return Finding(
        code=FindingCode.REPEATED_PER_WORKER,
        message=(
            f"each worker delivers the whole stream ({figures}): no more than {workers - 1} "
            f"{'workers are' if workers == 1 else 'worker is'} tried, since the same samples again "
            "teach nothing. Give each worker its share: see torch.utils.data.get_worker_info()"
        ),
        max_workers=workers - 1,
    )


def _lost(figures: str, share: float, workers: int) -> Finding:
    few = share >= _FEW_LOST
    limit = (
        ""
        if few
        else f": no more than {workers - 1} {'workers are' if workers == 1 else 'worker is'} tried"
    )
    return Finding(
        code=FindingCode.LOST_IN_WORKERS,
        message=(
            f"workers deliver only a part of the stream ({figures}){limit}. Look at how the "
            "dataset shares it out among them"
        ),
        max_workers=None if few else workers - 1,
    )


_SECOND_PASS_EMPTY = Finding(
    code=FindingCode.SECOND_PASS_EMPTY,
    message=(
        "the data can be gone through once only: a second pass is empty, so a second epoch would "
        "train nothing, and a trial that reaches the end fails. Have __iter__ make a new iterator "
        "each time; the dataset hands out one and the same"
    ),
)
