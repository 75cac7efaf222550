"""Whether the passes over a stream are alike, without workers and with them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset, get_worker_info

from autotune.measurement import FindingCode, Preflight
from autotune.trial.preflight import passes
from autotune.trial.preflight.found import Found
from autotune.trial.preflight.look import CannotTell
from autotune.trial.preflight.passes import check_passes


class Stream(IterableDataset[Any]):
    """Counts as far as asked, and gives the workers what `share` says."""

    def __init__(self, samples: int | None, share: Callable[[int, int], slice] | None = None):
        self._samples = samples
        self._share = share

    def __iter__(self) -> Iterator[Any]:
        numbers: Any = itertools.count() if self._samples is None else range(self._samples)
        info = get_worker_info()
        if self._share is not None and info is not None:
            part = self._share(info.id, info.num_workers)
            numbers = itertools.islice(numbers, part.start, part.stop, part.step)
        return map(self.sample, numbers)

    def sample(self, number: int) -> Any:
        return torch.full((8,), float(number)), number % 4


class Augmented(Stream):
    def sample(self, number: int) -> Any:
        return torch.randn(8), number % 4


class Filtered(Stream):
    """Leaves samples out by chance, so that no two passes are of one length."""

    def __iter__(self) -> Iterator[Any]:
        return (sample for sample in super().__iter__() if random.random() < 0.9)


class Once(IterableDataset[Any]):
    """Hands out one generator."""

    def __init__(self, samples: int | None) -> None:
        self._rows = iter(Stream(samples))

    def __iter__(self) -> Iterator[Any]:
        return self._rows


def every(number: int, workers: int) -> slice:
    return slice(number, None, workers)


def nothing_for_one(number: int, workers: int) -> slice:
    """Forgets that a single worker has to deliver all."""
    return slice(number, None, 2)


def whole_parts(samples: int) -> Callable[[int, int], slice]:
    def share(number: int, workers: int) -> slice:
        part = samples // workers
        return slice(number * part, (number + 1) * part)

    return share


def seen(look: Any) -> Preflight:
    found = Found()
    check_passes(look, found)
    return found.preflight


@pytest.fixture(autouse=True)
def short_looks(monkeypatch):
    monkeypatch.setattr(passes, "_SAMPLES", 128)


@pytest.mark.parametrize("kind", [Stream, Augmented])
@pytest.mark.parametrize("samples", [97, 5000, None])
def test_a_stream_that_is_shared_out_is_fine(look_at, kind, samples):
    look = look_at(kind(samples, every))
    if kind is Augmented and samples != 97:
        with pytest.raises(CannotTell, match="drawn anew"):
            seen(look)
    else:
        assert seen(look) == Preflight(samples_per_pass=97 if samples == 97 else None)


@pytest.mark.parametrize(("kind", "samples"), [(Stream, 97), (Augmented, 97), (Stream, None)])
def test_a_stream_that_each_worker_delivers_whole(look_at, kind, samples):
    (finding,) = seen(look_at(kind(samples))).findings
    assert finding.code is FindingCode.REPEATED_PER_WORKER
    assert finding.max_workers == 1
    figures = "194 with 2, 97 samples a pass" if samples else "32 batches are 16 different ones"
    assert figures in finding.message


def test_passes_of_a_length_by_chance(look_at):
    assert seen(look_at(Filtered(97, every))) == Preflight()
    (finding,) = seen(look_at(Filtered(97))).findings
    assert finding.code is FindingCode.REPEATED_PER_WORKER


@pytest.mark.parametrize(
    ("share", "limit", "words"),
    [
        (whole_parts(97), None, "96 with 2, 97 samples"),
        (nothing_for_one, 0, "49 with 1, 97 samples"),
    ],
)
def test_samples_that_workers_leave_out(look_at, share, limit, words):
    (finding,) = seen(look_at(Stream(97, share))).findings
    assert finding.code is FindingCode.LOST_IN_WORKERS
    assert finding.max_workers == limit
    assert words in finding.message


@pytest.mark.parametrize("samples", [97, None])
def test_data_that_can_be_gone_through_once(look_at, samples):
    (finding,) = seen(look_at(Once(samples))).findings
    assert finding.code is FindingCode.SECOND_PASS_EMPTY
    assert finding.max_workers is None


@pytest.mark.parametrize(("most", "found"), [(0, 0), (1, 0), (2, 1)])
def test_only_as_many_workers_are_started_as_may_be_tried(look_at, monkeypatch, most, found):
    asked = []
    build = passes.Look.loader

    def loader(look, batch_size, *, workers=0, dataset=None):
        asked.append(workers)
        return build(look, batch_size, workers=workers, dataset=dataset)

    monkeypatch.setattr(passes.Look, "loader", loader)
    assert len(seen(look_at(Stream(97), max_workers=most)).findings) == found
    assert max(asked) == most


def test_data_by_index_are_left_alone(look_at):
    assert seen(look_at(TensorDataset(torch.ones(8, 8), torch.zeros(8)))) == Preflight()
