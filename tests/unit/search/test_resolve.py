from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autotune.config import SpaceConfig
from autotune.measurement import Finding, FindingCode, JobFacts, Preflight
from autotune.search.resolve import resolve_space
from autotune.search.space import SearchSpace
from autotune.settings import CompileMode, Precision, Settings

Make = Callable[..., JobFacts]
BASELINE = Settings(batch_size=32)
ALL = SpaceConfig(
    batch_size="auto",
    num_workers="auto",
    pin_memory=(False, True),
    prefetch_factor=(2, 4),
    persistent_workers=(False, True),
    precision=tuple(Precision),
    compile=tuple(CompileMode),
    channels_last=(False, True),
    fused_optimizer=(False, True),
    cudnn_benchmark=(False, True),
)


def resolve(
    space: SpaceConfig, facts: JobFacts, baseline: Settings = BASELINE, **changes: Any
) -> SearchSpace:
    return resolve_space(space, baseline, facts, **{"usable_cpus": 6, "step_cap_s": 2.0, **changes})


def test_a_gpu_with_images_has_everything(make_facts: Make) -> None:
    space = resolve(ALL, make_facts())
    assert space.notes == ()
    assert space.values["batch_size"] == (32, 64, 128, 256, 512, 1024)
    assert space.values["precision"] == tuple(Precision)
    assert len(space.values) == 10


@pytest.mark.parametrize(
    ("cpus", "workers"),
    [(1, (0, 1)), (2, (0, 1, 2)), (6, (0, 1, 2, 4, 5, 6)), (16, (0, 1, 2, 4, 8, 15, 16))],
)
def test_auto_workers(make_facts: Make, cpus: int, workers: tuple[int, ...]) -> None:
    space = resolve(SpaceConfig(num_workers="auto"), make_facts(), usable_cpus=cpus)
    assert space.values["num_workers"] == workers


@pytest.mark.parametrize(
    ("kind", "baseline", "per_sample_s", "dataset", "batches"),
    [
        ("cuda", 32, 0.0001, 100, (32, 64)),
        ("cuda", 32, 0.02, 50_000, (32, 64, 128)),
        ("cuda", 48, 0.0001, 256, (32, 48, 64, 128, 256)),
        ("cuda", 8, 0.0001, 64, (8, 16, 32, 64)),
        ("cuda", 32, 0.0001, None, (32, 64, 128, 256, 512, 1024)),
        ("cpu", 4, 0.5, 50_000, (1, 2, 4, 8)),
        ("cpu", 32, 0.02, 50_000, (8, 16, 32, 64, 128)),
        ("cpu", 1, 9.0, 50_000, (1, 2)),
        ("cpu", 2, 0.5, 2, (1, 2)),
        ("cpu", 32, 0.0, 50_000, (8, 16, 32, 64, 128, 256, 512, 1024)),
    ],
)
def test_auto_batches(
    make_facts: Make,
    kind: str,
    baseline: int,
    per_sample_s: float,
    dataset: int | None,
    batches: tuple[int, ...],
) -> None:
    facts = make_facts(kind, seconds_per_sample=per_sample_s, dataset_size=dataset)
    space = resolve(SpaceConfig(batch_size="auto"), facts, Settings(batch_size=baseline))
    assert space.values["batch_size"] == batches


def test_listed_batches_are_obeyed_up_to_the_dataset(make_facts: Make) -> None:
    facts = make_facts("cpu", dataset_size=100, seconds_per_sample=60.0)
    space = resolve(SpaceConfig(batch_size=(7, 100, 101, 4096)), facts)
    assert space.values["batch_size"] == (7, 100)
    assert space.notes == (
        "batch_size=101, 4096 left out of the search: the dataset has 100 samples",
    )


def test_a_cpu_has_nothing_of_a_gpu(make_facts: Make) -> None:
    space = resolve(ALL, make_facts("cpu"))
    assert space.values["precision"] == (Precision.DEFAULT, Precision.BF16)
    assert space.values["pin_memory"] == space.values["cudnn_benchmark"] == (False,)
    assert space.values["channels_last"] == (False, True)
    notes = "\n".join(space.notes)
    for words in ("pin_memory=true", "tf32", "fp16", "cudnn_benchmark=true", "precision=fp32"):
        assert words in notes


def test_strict_fp32_is_kept_on_a_cpu_when_it_is_the_only_fp32(make_facts: Make) -> None:
    space = resolve(SpaceConfig(precision=(Precision.FP32, Precision.BF16)), make_facts("cpu"))
    assert space.values["precision"] == (Precision.FP32, Precision.BF16)


@pytest.mark.parametrize(
    ("changes", "knob", "kept"),
    [
        ({"native_bf16": False}, "precision", ("default", "fp32", "tf32", "fp16")),
        ({"native_bf16": None}, "precision", ("default", "fp32", "tf32", "bf16", "fp16")),
        ({"capability": "7.5"}, "precision", ("default", "fp32", "bf16", "fp16")),
        ({"capability": "12.0"}, "precision", ("default", "fp32", "tf32", "bf16", "fp16")),
        ({"compiler": False}, "compile", ("off",)),
    ],
)
def test_what_the_device_lacks_is_left_out(
    make_facts: Make, changes: dict[str, Any], knob: str, kept: tuple[str, ...]
) -> None:
    device = replace(make_facts().device, **changes)
    space = resolve(ALL, make_facts(device=device))
    assert space.choices(knob) == kept


def test_channels_last_is_for_images(make_facts: Make) -> None:
    space = resolve(ALL, make_facts(image_input=False))
    assert space.values["channels_last"] == (False,)


def test_resident_data_has_no_loader(make_facts: Make) -> None:
    space = resolve(ALL, make_facts(resident=True))
    loader = {"num_workers", "pin_memory", "prefetch_factor", "persistent_workers"}
    assert not loader & set(space.values)
    assert any("num_workers is not searched" in note for note in space.notes)


def test_a_setting_without_values_is_not_searched_and_says_where_it_stays(
    make_facts: Make,
) -> None:
    space = resolve(SpaceConfig(precision=(Precision.FP16,)), make_facts("cpu"))
    assert space.values == {}
    assert space.size == 1
    assert "precision is not searched, no value is left; it stays at default" in space.notes


@pytest.mark.parametrize("obeys", [True, False])
def test_fp16_goes_without_a_fused_optimizer_that_ignores_its_scaler(
    make_facts: Make, obeys: bool
) -> None:
    space = resolve(ALL, replace(make_facts(), fused_obeys_scaler=obeys))
    chosen = {"precision": "fp16", "fused_optimizer": True}
    assert space.complete(chosen).fused_optimizer is obeys
    assert any("fused SGD" in note for note in space.notes) is not obeys


def test_a_finding_that_limits_workers(make_facts: Make) -> None:
    found = Finding(code=FindingCode.REPEATED_PER_WORKER, message="why", max_workers=1)
    facts = make_facts(preflight=Preflight(findings=(found,)))
    space = resolve(SpaceConfig(num_workers="auto"), facts)
    assert space.values["num_workers"] == (0, 1)
    assert space.notes == ("num_workers=2, 4, 5, 6 left out of the search: repeated per worker",)


def test_a_finding_that_keeps_a_setting_as_it_is(make_facts: Make) -> None:
    found = Finding(code=FindingCode.BATCH_SIZE_IGNORED, message="why", kept=("batch_size",))
    space = resolve(ALL, make_facts(preflight=Preflight(findings=(found,))))
    assert "batch_size" not in space.values
    assert space.notes == ()


def test_a_stream_that_was_counted_bounds_the_batch(make_facts: Make) -> None:
    facts = make_facts(dataset_size=None, preflight=Preflight(samples_per_pass=100))
    space = resolve(SpaceConfig(batch_size=(32, 64, 128)), facts)
    assert space.values["batch_size"] == (32, 64)
    assert space.notes == ("batch_size=128 left out of the search: the dataset has 100 samples",)
