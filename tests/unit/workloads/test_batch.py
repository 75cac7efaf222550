from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from autotune.errors import WorkloadError
from autotune.workloads.batch import (
    batch_size_of,
    fingerprint,
    has_image,
    is_pinned,
    to_device,
)

META = torch.device("meta")
CPU = torch.device("cpu")
Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Sample:
    x: torch.Tensor
    name: str


class Movable:
    """A batch with a `to` of its own that takes a device only."""

    def __init__(self, x: torch.Tensor):
        self.x = x

    def to(self, device):
        return Movable(self.x.to(device))


class Named(list):
    note = ""


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


def named(x) -> Named:
    result = Named([x])
    result.note = "kept"
    return result


STRUCTURES = {
    "tensor": (ones(4, 2), lambda b: b),
    "tuple": ((ones(4, 2), "a"), lambda b: b[0]),
    "list": ([1, ones(4, 2)], lambda b: b[1]),
    "list subclass": (named(ones(4, 2)), lambda b: b[0]),
    "named tuple": (Pair(ones(4, 2), None), lambda b: b.x),
    "dict": ({"x": ones(4, 2), "n": 3}, lambda b: b["x"]),
    "ordered dict": (OrderedDict(x=ones(4, 2)), lambda b: b["x"]),
    "default dict": (defaultdict(list, x=ones(4, 2)), lambda b: b["x"]),
    "user dict": (UserDict(x=ones(4, 2)), lambda b: b["x"]),
    "frozen mapping": (MappingProxyType({"x": ones(4, 2)}), lambda b: b["x"]),
    "dataclass": (Sample(ones(4, 2), "a"), lambda b: b.x),
    "own to": (Movable(ones(4, 2)), lambda b: b.x),
    "packed": (pack_sequence([ones(3), ones(2), ones(2), ones(1)]), lambda b: b.data),
    "nested": ({"x": [(Sample(ones(4, 2), "a"),)]}, lambda b: b["x"][0][0].x),
}


@pytest.mark.parametrize(("batch", "inside"), STRUCTURES.values(), ids=STRUCTURES.keys())
def test_every_structure_moves_and_keeps_its_type(batch, inside):
    moved = to_device(batch, META, channels_last=False)
    assert type(moved) is type(batch)
    assert inside(moved).device.type == "meta"
    assert inside(batch).device.type == "cpu", "the original must stay as it was"


@pytest.mark.parametrize(("batch", "inside"), STRUCTURES.values(), ids=STRUCTURES.keys())
def test_samples_are_counted_in_every_structure(batch, inside):
    assert batch_size_of(batch) == 4


def test_further_content_stays():
    assert to_device((ones(1), "a", 3, None), META, channels_last=False)[1:] == ("a", 3, None)
    assert to_device(named(ones(1)), META, channels_last=False).note == "kept"
    assert to_device(defaultdict(list, x=ones(1)), META, channels_last=False)["new"] == []
    assert to_device(Sample(ones(1), "a"), META, channels_last=False).name == "a"
    assert to_device(torch.Tensor, META, channels_last=False) is torch.Tensor


def test_channels_last_is_for_floating_tensors_of_four_dimensions():
    batch = {
        "image": ones(2, 3, 4, 4),
        "mask": torch.ones(2, 3, 4, 4, dtype=torch.uint8),
        "video": ones(2, 3, 4, 4, 4),
    }
    plain = to_device(batch, CPU, channels_last=False)
    last = to_device(batch, CPU, channels_last=True)
    assert plain["image"].is_contiguous()
    assert last["image"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last["image"], batch["image"])
    assert last["mask"].is_contiguous()
    assert last["video"].is_contiguous()


def test_copies_do_not_wait(monkeypatch: pytest.MonkeyPatch):
    seen = []
    real = torch.Tensor.to

    def to(self, *args, **kwargs):
        seen.append(kwargs["non_blocking"])
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to)
    to_device([ones(2, 3, 4, 4), ones(1)], CPU, channels_last=True)
    assert seen == [True, True]


def test_samples_of_collated_lists():
    images = [ones(3, 5, 5), ones(3, 6, 6)]
    targets = [{"boxes": ones(n, 4)} for n in (1, 7)]
    assert batch_size_of((images, targets)) == 2


def test_samples_of_several_inputs():
    assert batch_size_of(((ones(6, 1), ones(6, 2)), (ones(6), ones(6)))) == 6
    assert batch_size_of(([ones(6, 1), ones(6, 2)], ones(6))) == 6


def test_scalars_are_no_samples():
    assert batch_size_of((torch.tensor(1.0), ones(5))) == 5


@pytest.mark.parametrize("batch", ["abc", {}, torch.tensor(1.0), [1, 2]])
def test_without_tensors_samples_cannot_be_counted(batch):
    with pytest.raises(WorkloadError, match=f"type {type(batch).__name__} holds no tensor"):
        batch_size_of(batch)


@pytest.mark.parametrize(
    ("batch", "answer"),
    [
        ((ones(2, 3, 4, 4), ones(2)), True),
        ({"x": [ones(2), ones(2, 1, 1, 1)]}, True),
        (torch.ones(2, 3, 4, 4, dtype=torch.uint8), False),
        ((ones(2, 3, 4), torch.ones(2, 8, dtype=torch.long)), False),
        ("text", False),
    ],
)
def test_has_image(batch, answer: bool):
    assert has_image(batch) is answer


def test_is_pinned(monkeypatch: pytest.MonkeyPatch):
    pinned, pageable = ones(1), ones(1)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: self is pinned)
    assert is_pinned({"x": pinned, "n": 1})
    assert not is_pinned([pinned, pageable])
    assert not is_pinned("no tensor at all")


def test_a_fingerprint_tells_batches_apart_and_knows_the_same_again():
    rows, labels = torch.randn(5000, 3), torch.arange(5000)
    known = fingerprint((rows, labels))
    assert fingerprint([rows.clone(), labels.clone()]) == known
    assert fingerprint((rows.to(memory_format=torch.contiguous_format), labels)) == known
    for other in (
        (rows + 1e-6, labels),
        (rows.bfloat16(), labels),
        (rows.flip(0), labels),
        (rows[:-1], labels[:-1]),
        (rows.reshape(3, 5000), labels),
    ):
        assert fingerprint(other) != known


def test_any_tensor_has_a_fingerprint():
    odd = {
        "sparse": torch.eye(3).to_sparse(),
        "scalar": torch.tensor(1.0),
        "none": torch.empty(0, 3),
        "flags": torch.tensor([True, False]),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "transposed": torch.arange(6).reshape(2, 3).T,
        "lazy": torch.nn.LazyLinear(3).weight,
        "text": "a",
    }
    assert fingerprint(odd) == fingerprint(dict(odd))
    assert fingerprint(odd) != fingerprint({**odd, "scalar": torch.tensor(2.0)})
