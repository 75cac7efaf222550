"""The probe in this process, on a CPU, with no workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autotune.config import LoaderConfig, ProbeConfig, WorkloadSpec
from autotune.errors import ConfigError
from autotune.measurement import Measurement
from autotune.request import TrialRequest
from autotune.settings import CompileMode, Settings
from autotune.trial.bench import Bench
from autotune.trial.probe import Probe
from autotune.trial.resident import time_is_up
from autotune.trial.tail import tail_samples, train_tail, untried_note
from autotune.workloads.workload import Workload

CPU = torch.device("cpu")
QUICK = ProbeConfig(window_s=0.05, warmup_s=0.05, ceiling_s=0.02, min_blocks=2)


def workload(samples: int, model: nn.Module | None = None, *, drop_last: bool = False) -> Workload:
    inputs = torch.randn(samples, 4, generator=torch.Generator().manual_seed(0))
    return Workload(
        dataset=TensorDataset(inputs, torch.arange(samples) % 2),
        collate=None,
        build_model=lambda: model or nn.Linear(4, 2),
        loss=nn.functional.cross_entropy,
        build_optimizer=lambda parameters, fused: torch.optim.SGD(parameters, lr=0.01),
        shuffle=False,
        drop_last=drop_last,
        resident=False,
    )


def requested(folder: Path) -> TrialRequest:
    spec = {"_target_": "not.used"}
    return TrialRequest(
        workload=WorkloadSpec(
            model=spec, data=spec, collate=None, loss=None, optimizer=spec, loader=LoaderConfig()
        ),
        settings=Settings(batch_size=4),
        probe=QUICK,
        device="cpu",
        seed=0,
        folder=str(folder),
        limit_s=60.0,
    )


def probed(job: Workload, folder: Path) -> tuple[Measurement, list[str]]:
    stages: list[str] = []
    return Probe(requested(folder), CPU, 0.0, stages.append).run(job), stages


def test_the_last_partial_batch_is_trained_after_the_window(tmp_path: Path) -> None:
    measured, stages = probed(workload(100_002), tmp_path)
    assert measured.memory.tail_batch == 2
    assert measured.memory.largest_batch_bytes == 4 * 4 * 4 + 4 * 8
    assert stages[-2:] == ["window", "tail batch"]
    assert measured.memory.host_peak_bytes


@pytest.mark.parametrize("job", [workload(100_000), workload(100_002, drop_last=True)])
def test_without_a_partial_batch_there_is_nothing_to_try(tmp_path: Path, job: Workload) -> None:
    measured, stages = probed(job, tmp_path)
    assert measured.memory.tail_batch is None
    assert stages[-1] == "window"


@pytest.mark.parametrize(
    ("step_s", "ends", "told"),
    [
        ([0.5, 0.5, 0.5, 0.004], False, False),  # the fixed number of steps has no cap
        ([0.5, 0.5, 0.5, 0.03], True, False),  # too few to compare: slow ones
        ([0.001, 0.001, 0.001, 0.002, 0.008, 0.012], True, True),
    ],
)
def test_a_warm_up_that_ends_by_its_time_says_so(
    tmp_path: Path, step_s: list[float], ends: bool, told: bool
) -> None:
    bench = Bench(requested(tmp_path), CPU, 0.0, lambda stage: None)
    assert time_is_up(bench, step_s) is ends
    assert any("probe.ceiling_s=0.02" in note for note in bench.notes) is told


def test_a_single_sample_that_batch_normalisation_refuses_is_found(tmp_path: Path) -> None:
    job = workload(100_001, nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)))
    with pytest.raises(ConfigError, match="more than 1 value per channel") as caught:
        probed(job, tmp_path)
    assert "loader.drop_last: got False" in str(caught.value)
    assert "holds 1 of 4 samples" in str(caught.value)


def test_lack_of_memory_at_the_tail_comes_out_as_it_is() -> None:
    def step() -> None:
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError):
        train_tail(step, 1, Settings(batch_size=4), CPU)


def test_cudnn_does_not_search_for_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    seen: list[bool] = []
    train_tail(lambda: seen.append(torch.backends.cudnn.benchmark), 1, Settings(batch_size=4), CPU)
    assert seen == [False]
    assert torch.backends.cudnn.benchmark is True


def test_a_compiled_setting_says_why_the_tail_was_not_tried() -> None:
    assert untried_note(2, Settings(batch_size=4)) is None
    note = untried_note(2, Settings(batch_size=4, compile=CompileMode.DEFAULT))
    assert note is not None
    assert "loader.drop_last=true" in note
    assert tail_samples(workload(102), 4) == 2
