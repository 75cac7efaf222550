"""Whether what a worker needs can be sent to it."""

from __future__ import annotations

import functools
import multiprocessing
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset, default_collate

from autotune.measurement import FindingCode
from autotune.trial.preflight.found import Found
from autotune.trial.preflight.picklable import check_picklable


class Rows(TensorDataset):
    """Rows with whatever attribute."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(torch.randn(16, 8), torch.arange(16) % 4)
        vars(self).update(attributes)


class Compose:
    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)


class WithoutItsLock(Rows):
    """Leaves out what has no pickle."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "lock"}


class Slots:
    __slots__ = ("fn",)

    def __init__(self, fn: Any) -> None:
        self.fn = fn


def scaled(samples: list[Any], scale: Any = None) -> Any:
    return default_collate(samples)


def closure() -> Any:
    def inner(row: Any) -> Any:
        return row

    return inner


def local_object() -> Any:
    class Local:
        pass

    return Local()


@pytest.fixture(params=["spawn", "forkserver"])
def method(request, monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: request.param)
    return request.param


def seen(look: Any) -> Any:
    found = Found()
    check_picklable(look, found)
    return found.preflight.findings


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"transform": lambda row: row}, "data.dataset.transform is a lambda"),
        ({"transform": closure()}, "data.dataset.transform is a function that was made inside"),
        (
            {"transform": Compose(torch.sin, Compose(lambda row: row))},
            "data.dataset.transform.steps[1].steps[0] is a lambda",
        ),
        (
            {"readers": {"train": functools.partial(scaled, scale=lambda row: row)}},
            "data.dataset.readers['train'].keywords['scale'] is a lambda",
        ),
        ({"hook": Compose(lambda row: row).__init__}, "data.dataset.hook.__self__.steps[0] is a"),
        ({"cut": Slots(lambda row: row)}, "data.dataset.cut.fn is a lambda"),
        ({"file": (number for number in range(3))}, "data.dataset.file is a generator"),
        ({"lock": threading.Lock()}, "data.dataset.lock is a _thread.lock"),
        ({"reader": local_object()}, "a class that was made inside a function"),
    ],
)
def test_what_has_no_pickle_is_named(look_at, method, attributes, words):
    (finding,) = seen(look_at(Rows(**attributes)))
    assert finding.code is FindingCode.NOT_PICKLABLE
    assert finding.max_workers == 0
    assert words in finding.message
    assert f"workers start by {method}" in finding.message
    assert "only num_workers=0 is tried" in finding.message


def test_a_collate_function_is_sent_as_well(look_at, method):
    (finding,) = seen(look_at(Rows(), collate=lambda samples: default_collate(samples)))
    assert "data.collate is a lambda" in finding.message


@pytest.mark.parametrize(
    ("dataset", "collate"),
    [
        (Rows(), None),
        (Rows(transform=Compose(torch.sin, scaled)), functools.partial(scaled, scale=2)),
        (WithoutItsLock(lock=threading.Lock()), scaled),
    ],
)
def test_what_has_a_pickle_is_fine(look_at, method, dataset, collate):
    assert seen(look_at(dataset, collate=collate)) == ()


def test_no_tensor_is_moved_into_shared_memory(look_at, method):
    rows = Rows()
    assert seen(look_at(rows)) == ()
    assert not rows.tensors[0].is_shared()


def test_forked_workers_inherit_everything(look_at, monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "fork")
    assert seen(look_at(Rows(transform=lambda row: row))) == ()


def test_without_workers_nothing_is_sent(look_at, method):
    assert seen(look_at(Rows(transform=lambda row: row), max_workers=0)) == ()
