from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from autotune.request import PreflightScope
from autotune.trial.preflight import Look
from autotune.workloads.workload import Workload

CANDIDATES = (4, 8, 16, 32)


def _linear() -> torch.nn.Module:
    return torch.nn.Linear(8, 4)


def _sgd(parameters: Any, *, fused: bool = False) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-6)


@pytest.fixture
def look_at() -> Callable[..., Look]:
    """Build a look at a dataset of rows of eight numbers with one of four labels."""

    def build(
        dataset: Dataset[Any],
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        model: Callable[[], torch.nn.Module] = _linear,
        batch_sizes: tuple[int, ...] = CANDIDATES,
        max_workers: int = 2,
        drop_last: bool = False,
        limit_s: float = 30.0,
    ) -> Look:
        return Look(
            workload=Workload(
                dataset=dataset,
                collate=collate,
                build_model=model,
                loss=torch.nn.functional.cross_entropy,
                build_optimizer=_sgd,
                shuffle=True,
                drop_last=drop_last,
                resident=False,
            ),
            scope=PreflightScope(batch_sizes=batch_sizes, max_workers=max_workers, limit_s=limit_s),
            device=torch.device("cpu"),
            seed=0,
            seconds_per_sample=1e-4,
        )

    return build
