from dataclasses import replace

import pytest
import torch
from factories import CPU, FACTS, make_result
from torch.utils.data import DataLoader, TensorDataset

from autotune.export import Tuned, tuned_from
from autotune.settings import CompileMode, Precision, Settings


@pytest.fixture(autouse=True)
def _restore_modes():
    matmul = torch.get_float32_matmul_precision()
    cudnn = (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32)
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = cudnn


def tuned_with(settings: Settings) -> Tuned:
    made = make_result(facts=replace(FACTS, device=CPU))
    return replace(tuned_from(made), settings=settings)


def test_dataloader_takes_the_kwargs_with_and_without_workers() -> None:
    data = TensorDataset(torch.zeros(8, 1))
    for settings in (
        Settings(batch_size=4),
        Settings(batch_size=4, num_workers=1),
        Settings(batch_size=4, num_workers=2, prefetch_factor=3, persistent_workers=True),
    ):
        loader = DataLoader(data, **tuned_with(settings).dataloader_kwargs())
        assert loader.batch_size == 4
        assert loader.num_workers == settings.num_workers
        if settings.prefetch_factor is not None:
            assert loader.prefetch_factor == settings.prefetch_factor


def test_prepare_sets_modes_and_memory_format() -> None:
    settings = Settings(
        batch_size=2, precision=Precision.TF32, channels_last=True, cudnn_benchmark=True
    )
    model = tuned_with(settings).prepare(torch.nn.Conv2d(3, 4, 3))
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.benchmark


def test_prepare_compiles_in_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def record(model: torch.nn.Module, *, mode: str) -> torch.nn.Module:
        seen.append(mode)
        return model

    monkeypatch.setattr(torch, "compile", record)
    model = torch.nn.Linear(2, 2)
    tuned_with(Settings(batch_size=2)).prepare(model)
    assert seen == []
    tuned_with(Settings(batch_size=2, compile=CompileMode.MAX_AUTOTUNE)).prepare(model)
    assert seen == ["max-autotune"]


def test_ten_steps_with_everything() -> None:
    settings = Settings(batch_size=4, precision=Precision.BF16, fused_optimizer=True)
    tuned = tuned_with(settings)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))
    model = tuned.prepare(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **tuned.optimizer_kwargs())
    scaler = tuned.grad_scaler()
    before = model.weight.detach().clone()
    steps = 0
    for batch in DataLoader(data, **tuned.dataloader_kwargs()):
        inputs, labels = tuned.to_device(batch, "cpu")
        with tuned.autocast():
            output = model(inputs)
            assert output.dtype is torch.bfloat16
            loss = torch.nn.functional.cross_entropy(output, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        steps += 1
    assert steps == 10
    assert not torch.equal(before, model.weight)


def test_scaler_works_only_for_fp16() -> None:
    assert (
        not tuned_with(Settings(batch_size=1, precision=Precision.BF16)).grad_scaler().is_enabled()
    )
    fp16 = tuned_with(Settings(batch_size=1, precision=Precision.FP16))
    assert fp16.grad_scaler().is_enabled()


def test_optimizer_kwargs() -> None:
    assert tuned_with(Settings(batch_size=1)).optimizer_kwargs() == {}
    fused = tuned_with(Settings(batch_size=1, fused_optimizer=True))
    assert fused.optimizer_kwargs() == {"fused": True}


def test_to_device_uses_the_memory_format() -> None:
    images = torch.zeros(2, 3, 4, 4)
    tuned = tuned_with(Settings(batch_size=2, channels_last=True))
    (moved,) = tuned.to_device([images], "cpu")
    assert moved.is_contiguous(memory_format=torch.channels_last)
