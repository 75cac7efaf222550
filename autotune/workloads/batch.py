"""Batches of any structure: moving them, counting their samples, looking inside."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from autotune.errors import WorkloadError

_FINGERPRINT_ELEMENTS = 1024
"""Elements of a tensor that its fingerprint looks at."""


def to_device(batch: Any, device: torch.device, *, channels_last: bool) -> Any:
    """Return the batch on a device, with the same types all the way down.

    Tensors inside mappings, lists, tuples, named tuples and dataclasses are moved, without waiting
    for the copy; an object with a `to` method of its own moves itself; all else stays.

    Args:
        batch: Any structure.
        device: Where to.
        channels_last: Give floating tensors of 4 dimensions that memory format.
    """
    if isinstance(batch, torch.Tensor):
        if channels_last and batch.dim() == 4 and batch.is_floating_point():
            return batch.to(device, non_blocking=True, memory_format=torch.channels_last)
        return batch.to(device, non_blocking=True)

    def move(part: Any) -> Any:
        return to_device(part, device, channels_last=channels_last)

    if isinstance(batch, Mapping):
        return _moved_mapping(batch, move)
    if callable(own := getattr(batch, "to", None)) and not isinstance(batch, type):
        try:
            return own(device, non_blocking=True)
        except TypeError:  # its `to` takes a device only
            return own(device)
    if isinstance(batch, tuple):
        parts = [move(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if isinstance(batch, list):
        moved = copy.copy(batch)  # keeps the attributes of a subclass
        moved[:] = [move(part) for part in batch]
        return moved
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        moved_object = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # A frozen dataclass refuses the ordinary assignment.
            object.__setattr__(moved_object, field.name, move(getattr(batch, field.name)))
        return moved_object
    return batch


def batch_size_of(batch: Any) -> int:
    """Return the number of samples in a batch: the leading dimension of its first tensor.

    A batch of lists, one element per sample in each (as detection collates with `zip(*batch)`),
    has as many samples as the lists have elements. It is told from a batch of several inputs,
    `((a, b), (c, d))`, by its tensors: those of one sample differ in their leading dimension.

    Raises:
        WorkloadError: There is no tensor with a dimension in it.
    """
    if type(batch) in (tuple, list) and batch:
        first = batch[0]
        if isinstance(first, torch.Tensor) and first.dim() > 0:
            return _leading(first)  # most batches, without a walk: this runs in each timed step
    leading = [_leading(tensor) for tensor in _tensors(batch) if tensor.dim() > 0]
    if not leading:
        raise WorkloadError(
            f"data: a batch of type {type(batch).__name__} holds no tensor, so its samples cannot "
            "be counted. Return tensors from data.collate, in tuples, lists, mappings or "
            "dataclasses."
        )
    if isinstance(batch, (tuple, list)) and len(set(leading)) > 1:
        lengths = {len(part) if isinstance(part, (tuple, list)) else None for part in batch}
        if len(lengths) == 1 and (samples := lengths.pop()) is not None:
            return samples
    return leading[0]


def batch_bytes(batch: Any) -> int:
    """Return the bytes of all tensors in a batch; sparse ones, whose size varies, count as 0."""
    return sum(
        tensor.nbytes
        for part in _parts(batch)
        if (tensor := part.data if isinstance(part, PackedSequence) else part).layout
        is torch.strided
        or tensor.is_nested
    )


def has_image(batch: Any) -> bool:
    """Return whether a floating tensor of 4 dimensions is in the batch: channels_last applies."""
    return any(tensor.dim() == 4 and tensor.is_floating_point() for tensor in _tensors(batch))


def is_pinned(batch: Any) -> bool:
    """Return whether the batch holds tensors and all of them lie in page-locked memory."""
    pinned = [tensor.is_pinned() for tensor in _tensors(batch)]
    return bool(pinned) and all(pinned)


def fingerprint(batch: Any) -> str:
    """Return a short text that tells two batches (or state dicts) of tensors apart.

    Shapes and types count, and some elements from all over each tensor: enough for data that were
    drawn anew, at a cost that does not grow with them.
    """
    found = hashlib.sha256()
    for tensor in _tensors(batch):
        if torch.nn.parameter.is_lazy(tensor):
            continue
        found.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        if tensor.layout is torch.strided and tensor.numel():
            flat = tensor.detach().flatten()
            few = flat[:: -(-len(flat) // _FINGERPRINT_ELEMENTS)].cpu().contiguous()
            found.update(few.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]


def _moved_mapping(batch: Mapping[Any, Any], move: Any) -> Any:
    items = {key: move(value) for key, value in batch.items()}
    if type(batch) is dict:
        return items
    if isinstance(batch, MutableMapping):
        moved = copy.copy(batch)  # keeps a default factory or further attributes
        moved.update(items)
        return moved
    return type(batch)(items)  # type: ignore[call-arg]


def _leading(tensor: torch.Tensor) -> int:
    return int(tensor.shape[0])


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    for part in _parts(batch):
        if isinstance(part, PackedSequence):
            yield part.data[: int(part.batch_sizes[0])]  # the first step in time of each sequence
        else:
            yield part


def _parts(batch: Any) -> Iterator[torch.Tensor | PackedSequence]:
    if isinstance(batch, (torch.Tensor, PackedSequence)):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from _parts(part)
    elif isinstance(batch, (tuple, list)):
        for part in batch:
            yield from _parts(part)
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for field in dataclasses.fields(batch):
            yield from _parts(getattr(batch, field.name))
    elif hasattr(batch, "to") and hasattr(batch, "__dict__"):
        for part in vars(batch).values():
            yield from _parts(part)
