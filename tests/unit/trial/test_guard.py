"""The guard through the real probe, on jobs that learn the same and on jobs that do not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autotune import objective
from autotune.config import NumericsConfig, ProbeConfig, WorkloadSpec
from autotune.measurement import Measurement, NumericsReport, from_json, to_json
from autotune.request import TrialRequest
from autotune.settings import CompileMode, Precision, Settings
from autotune.trial.guard import FOLDER
from autotune.trial.probe import Probe
from autotune.workloads.workload import Workload

CPU = torch.device("cpu")
BF16 = Settings(batch_size=8, precision=Precision.BF16)
COMPILED = Settings(batch_size=8, compile=CompileMode.DEFAULT)
SPEC = WorkloadSpec(
    model={"_target_": "a.model"},
    data={"_target_": "a.data"},
    collate=None,
    loss=None,
    optimizer={"_target_": "an.optimizer"},
)


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        numbers = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=numbers), index % 4


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 4))


def is_bf16() -> bool:
    return torch.is_autocast_enabled("cpu")


def workload(
    build_model: Callable[[], nn.Module] = network,
    loss: Callable[..., torch.Tensor] = nn.functional.cross_entropy,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Workload:
    return Workload(
        dataset=Rows(),
        collate=collate,
        build_model=build_model,
        loss=loss,
        build_optimizer=lambda parameters, fused: torch.optim.SGD(
            parameters, lr=0.1, momentum=0.9, fused=fused
        ),
        shuffle=True,
        drop_last=True,
        resident=True,
    )


class Measure:
    """Runs a probe in this process; remembers its stages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "0000"
        self.folder.mkdir()
        self.stages: list[str] = []

    def __call__(
        self, job: Workload, settings: Settings = BF16, **changes: Any
    ) -> tuple[Measurement, NumericsReport]:
        values: dict[str, Any] = {
            "workload": SPEC,
            "settings": settings,
            "probe": ProbeConfig(window_s=0.2, warmup_s=0.2, ceiling_s=0.2, min_blocks=2),
            "device": "cpu",
            "seed": 0,
            "folder": str(self.folder),
            "limit_s": 600.0,
            "check_above": 0.0,
            "numerics": NumericsConfig(steps=4),
        }
        request = TrialRequest(**{**values, **changes})
        self.stages = []
        measured = Probe(request, CPU, 0.0, self.stages.append).run(job)
        assert from_json(to_json(measured)) == measured
        return measured, measured.numerics or NumericsReport(losses=())


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    return Measure(tmp_path)


def test_bf16_learns_what_fp32_learns(measure: Measure) -> None:
    measured, found = measure(workload())
    assert found.failed is None
    assert found.unchecked is None
    assert len(found.reference) >= 2
    assert found.difference is not None
    assert 0 < found.difference < 0.02
    assert found.reference[-1] < found.reference[0]
    assert objective.infeasible(measured) is None
    assert measured.costs.guard_s is not None
    assert measured.skipped_steps is None
    assert measure.stages[-1] == "numerics"


def test_plain_fp32_is_the_reference_itself(measure: Measure) -> None:
    _, found = measure(workload(), Settings(batch_size=8, precision=Precision.FP32))
    assert found.difference == 0.0


def test_the_reference_is_kept_for_its_batch_size(measure: Measure) -> None:
    builds = 0

    def build() -> nn.Module:
        nonlocal builds
        builds += 1
        return network()

    _, first = measure(workload(build))
    assert builds == 3
    _, again = measure(workload(build), replace(BF16, fused_optimizer=True))
    assert builds == 4
    assert again.reference[:2] == first.reference[:2]
    assert again.failed is None
    measure(workload(build), replace(BF16, batch_size=16))
    assert builds == 7
    assert len(list((measure.folder.parent / FOLDER).iterdir())) == 2


def test_a_stored_reference_that_cannot_be_read_is_measured_again(measure: Measure) -> None:
    measure(workload())
    (stored,) = (measure.folder.parent / FOLDER).iterdir()
    stored.write_text('{"losses": "seven"}')
    _, found = measure(workload())
    assert found.unchecked is None
    assert stored.read_text().startswith('{"losses":[')


def test_without_a_place_for_it_the_reference_still_serves(measure: Measure) -> None:
    (measure.folder.parent / FOLDER).write_text("a file")
    _, found = measure(workload())
    assert found.unchecked is None
    assert found.difference is not None


def test_dropout_draws_other_numbers_and_passes(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OtherMasks(nn.Module):
        """Compiled code draws from another place, as inductor's does."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            torch.rand(5)
            return self.model(rows)

    monkeypatch.setattr(torch, "compile", lambda model, mode: OtherMasks(model))
    _, found = measure(workload(with_dropout), COMPILED)
    assert found.difference is not None
    assert found.difference > 1e-3, "the tolerance without random numbers"
    assert found.failed is None


def test_a_loss_that_bf16_scales_is_not_used(measure: Measure) -> None:
    def scaled(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, target) * (0.5 if is_bf16() else 1.0)

    measured, found = measure(workload(loss=scaled))
    assert found.failed is not None
    assert "in fp32 eager" in found.failed
    assert objective.infeasible(measured) == found.failed
    assert objective.lacks_memory(measured) is None


def test_gradients_that_bf16_loses_are_seen(measure: Measure) -> None:
    def lost(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(output, target)
        return loss.detach() + 0.0 * loss if is_bf16() else loss

    measured, found = measure(workload(loss=lost))
    assert found.gradient_norm == 0.0
    assert objective.infeasible(measured) is not None


def test_a_compiled_model_that_computes_something_else_is_not_used(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return 1.2 * self.model(rows)

    monkeypatch.setattr(torch, "compile", lambda model, mode: Wrong(model))
    measured, found = measure(workload(), COMPILED)
    assert found.failed is not None
    assert objective.infeasible(measured) == found.failed


def test_a_parameter_that_is_not_finite_fails_with_a_finite_loss(measure: Measure) -> None:
    class Late(nn.Linear):
        """Gets a gradient that is no number once nobody watches it any more."""

        steps = 0

        def __init__(self) -> None:
            super().__init__(8, 4)
            self.scale = nn.Parameter(torch.zeros(()))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            nothing = self.scale.sqrt() if self.steps > 5 else self.scale
            # The square root's slope at 0 is infinite, and 0 times that is no number.
            return super().forward(rows) + (0.0 * nothing).nan_to_num()

    _, found = measure(workload(Late))
    assert found.failed is not None
    assert found.failed.startswith("a parameter is infinite or not a number")


def test_no_memory_for_the_reference_leaves_the_setting_unchecked(measure: Measure) -> None:
    class Hungry(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            if not is_bf16():
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(rows)

    measured, found = measure(workload(lambda: Hungry(8, 4)))
    assert found.unchecked == "the fp32 job does not fit into memory at batch 8"
    assert objective.infeasible(measured) is None


def test_a_reference_that_raises_leaves_the_setting_unchecked(measure: Measure) -> None:
    class Half(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            if not is_bf16():
                raise RuntimeError("only with autocast")
            return super().forward(rows)

    _, found = measure(workload(lambda: Half(8, 4)))
    assert found.unchecked == "the fp32 job failed: RuntimeError: only with autocast"


def test_weights_that_no_seed_fixes_leave_it_unchecked(measure: Measure) -> None:
    turns = itertools.count()

    def build() -> nn.Module:
        model = network()
        with torch.no_grad():
            model[0].weight.add_(next(turns))
        return model

    _, found = measure(workload(build))
    assert found.unchecked is not None
    assert found.unchecked.startswith("the model gets other weights each time")


def test_a_batch_that_no_seed_fixes_leaves_it_unchecked(measure: Measure) -> None:
    turns = itertools.count()

    def collate(samples: list[Any]) -> Any:
        rows, labels = torch.utils.data.default_collate(samples)
        return rows + next(turns), labels

    _, found = measure(workload(collate=collate))
    assert found.unchecked is not None
    assert found.unchecked.startswith("data.collate makes another batch")


def test_a_collate_that_draws_from_torch_is_repeated(measure: Measure) -> None:
    def mixup(samples: list[Any]) -> Any:
        rows, labels = torch.utils.data.default_collate(samples)
        return rows + torch.rand(1) * rows.roll(1, 0), labels

    _, found = measure(workload(collate=mixup))
    assert found.unchecked is None
    assert found.failed is None


def test_without_time_it_is_unchecked(measure: Measure) -> None:
    measured, found = measure(workload(), limit_s=1e-3)
    assert found.unchecked == "no time was left for the fp32 job (budget.minutes gives more)"
    assert found.failed is None
    assert measured.window.steps > 0


@pytest.mark.parametrize(
    ("above", "why"), [(None, "not asked for"), (1e12, "clearly slower than the best known")]
)
def test_a_trial_that_cannot_win_costs_no_reference(
    measure: Measure, above: float | None, why: str
) -> None:
    measured, found = measure(workload(), check_above=above)
    assert found.unchecked == why
    assert len(found.losses) >= 2
    assert "numerics" not in measure.stages
    assert measured.costs.guard_s is None
    assert not (measure.folder.parent / FOLDER).exists()


def test_the_guard_can_be_switched_off(measure: Measure) -> None:
    measured, _ = measure(workload(), numerics=NumericsConfig(guard=False))
    assert measured.numerics is None
    assert "numerics" not in measure.stages


class Annealing(nn.Module):
    """A loss that fades with each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return nn.functional.cross_entropy(output, target) * 0.98**self.calls


def test_a_loss_that_counts_its_steps_is_compared_from_its_beginning(measure: Measure) -> None:
    _, found = measure(workload(loss=Annealing()))
    assert found.failed is None
    assert found.unchecked is None
    assert found.difference is not None


def test_a_job_that_does_not_repeat_itself_is_unchecked_and_not_blamed(measure: Measure) -> None:
    calls = itertools.count(1)

    def fading(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        factor = 1.0 if next(calls) <= 4 else 0.01  # the guard watches four steps
        return nn.functional.cross_entropy(output, target) * factor

    measured, found = measure(workload(loss=fading))
    assert found.failed is None
    assert found.unchecked is not None
    assert "does not repeat its own first losses" in found.unchecked
    assert objective.infeasible(measured) is None


@pytest.mark.parametrize("spoil", [{"losses": []}, {"again": [1.0]}])
def test_a_reference_that_is_not_whole_is_measured_again(
    measure: Measure, spoil: dict[str, Any]
) -> None:
    measure(workload())
    (path,) = (measure.folder.parent / FOLDER).glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | spoil))
    _, found = measure(workload())
    assert found.failed is None
    assert found.unchecked is None
    assert len(json.loads(path.read_text())["again"]) > 1
