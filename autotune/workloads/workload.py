"""The built workload: what the probe trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A job ready to be trained.

    Attributes:
        dataset: Map-style or iterable dataset.
        collate: Turns a list of samples into a batch; None for torch's default.
        build_model: Returns a new model with random weights, on the CPU.
        loss: Called as `loss(output, target)`; None when the model returns its own loss.
        build_optimizer: Called as `build_optimizer(parameters, fused=...)`.
        shuffle: Shuffle a map-style dataset.
        drop_last: Leave out the last batch of a pass when it is not full.
        resident: The data is one batch that stays on the device; no loader is involved.
    """

    dataset: Dataset[Any]
    collate: Callable[[list[Any]], Any] | None
    build_model: Callable[[], torch.nn.Module]
    loss: Callable[..., torch.Tensor] | None
    build_optimizer: Callable[..., torch.optim.Optimizer]
    shuffle: bool
    drop_last: bool
    resident: bool


Parameters = Iterable[torch.nn.Parameter]
