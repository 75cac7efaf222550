"""The plain reason, on a CPU, for a step that broke a device."""

from __future__ import annotations

import time

import pytest
import torch
from torch.utils.data import TensorDataset

from autotune.config import NumericsConfig, ProbeConfig, WorkloadSpec
from autotune.request import TrialRequest
from autotune.settings import Settings
from autotune.trial.second_look import reason_on_cpu
from autotune.workloads.build import build_workload
from autotune.workloads.workload import Workload


def labels_to_four() -> TensorDataset:
    return TensorDataset(torch.randn(200, 8), torch.arange(200) % 5)


def labels_to_three() -> TensorDataset:
    return TensorDataset(torch.randn(200, 8), torch.arange(200) % 4)


def four_outputs() -> torch.nn.Module:
    return torch.nn.Linear(8, 4)


class Slow(torch.nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        time.sleep(60)
        return super().forward(rows)


def slow() -> torch.nn.Module:
    return Slow(8, 4)


def job(model: str, data: str) -> tuple[Workload, TrialRequest]:
    spec = WorkloadSpec(
        model={"_target_": f"{__name__}.{model}"},
        data={"_target_": f"{__name__}.{data}"},
        collate=None,
        loss={"_target_": "torch.nn.functional.cross_entropy"},
        optimizer={"_target_": "torch.optim.SGD"},
    )
    request = TrialRequest(
        workload=spec,
        settings=Settings(batch_size=64),
        probe=ProbeConfig(),
        numerics=NumericsConfig(),
        device="cuda",
        seed=0,
        folder=".",
        limit_s=60.0,
    )
    return build_workload(spec), request


@pytest.mark.parametrize(
    ("model", "data", "left_s", "reason"),
    [
        ("four_outputs", "labels_to_four", 40.0, "IndexError: Target 4 is out of bounds."),
        ("four_outputs", "labels_to_three", 40.0, None),
        ("slow", "labels_to_four", 0.2, None),
    ],
)
def test_the_cpu_is_asked_for_the_plain_reason(
    model: str, data: str, left_s: float, reason: str | None
) -> None:
    assert reason_on_cpu(*job(model, data), left_s) == reason
