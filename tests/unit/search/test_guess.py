from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from factories import make_measurement

from autotune.config import BaselineConfig
from autotune.errors import ConfigError
from autotune.measurement import JobFacts, Measurement
from autotune.search.guess import baseline_settings, expert_settings, steps_from
from autotune.search.space import SearchSpace
from autotune.settings import CompileMode, Precision, Settings

Make = Callable[..., JobFacts]
BASELINE = Settings(batch_size=32)
SPACE = SearchSpace(
    {
        "batch_size": (32, 64, 128, 256, 512),
        "num_workers": (0, 1, 2, 4, 8),
        "pin_memory": (False, True),
        "prefetch_factor": (2, 4),
        "persistent_workers": (False, True),
        "precision": (Precision.DEFAULT, Precision.BF16),
        "compile": (CompileMode.DEFAULT, CompileMode.OFF),
        "channels_last": (False, True),
        "fused_optimizer": (False, True),
        "cudnn_benchmark": (False, True),
    },
    BASELINE,
)


@pytest.mark.parametrize(
    ("dataset", "per_sample_s", "batch"),
    [(50_000, 0.001, 32), (20, 0.001, 16), (50_000, 0.5, 4), (50_000, 9.0, 1), (None, 0.0, 32)],
)
def test_the_baselines_batch_is_what_fits(
    make_facts: Make, dataset: int | None, per_sample_s: float, batch: int
) -> None:
    facts = make_facts(dataset_size=dataset, seconds_per_sample=per_sample_s)
    assert baseline_settings(BaselineConfig(), facts, 2.0) == Settings(batch_size=batch)


def test_a_number_is_obeyed_and_so_is_the_rest(make_facts: Make) -> None:
    config = BaselineConfig(batch_size=512, num_workers=3, pin_memory=True)
    settings = baseline_settings(config, make_facts(seconds_per_sample=9.0), 2.0)
    assert settings == Settings(batch_size=512, num_workers=3, pin_memory=True)


def test_a_batch_above_the_dataset_is_refused(make_facts: Make) -> None:
    with pytest.raises(ConfigError, match=r"baseline\.batch_size: got 8; allowed: at most 7"):
        baseline_settings(BaselineConfig(batch_size=8), make_facts(dataset_size=7), 2.0)
    stream = make_facts(dataset_size=None)
    assert baseline_settings(BaselineConfig(batch_size=8), stream, 2.0).batch_size == 8


def test_an_expert_on_a_gpu(make_facts: Make) -> None:
    assert expert_settings(BASELINE, SPACE, make_facts(), usable_cpus=8) == Settings(
        batch_size=256,
        num_workers=8,
        pin_memory=True,
        prefetch_factor=2,
        persistent_workers=True,
        precision=Precision.BF16,
        compile=CompileMode.OFF,
        channels_last=True,
        fused_optimizer=True,
        cudnn_benchmark=True,
    )


def test_an_expert_on_a_cpu(make_facts: Make) -> None:
    assert expert_settings(BASELINE, SPACE, make_facts("cpu"), usable_cpus=2) == Settings(
        batch_size=32,
        num_workers=1,
        prefetch_factor=2,
        persistent_workers=True,
        channels_last=True,
    )


def test_an_expert_stays_in_the_space(make_facts: Make) -> None:
    values = {
        "batch_size": (32, 64),
        "num_workers": (0, 4),
        "precision": (Precision.FP16, Precision.TF32),
        "compile": (CompileMode.DEFAULT,),
    }
    space = SearchSpace(values, BASELINE)
    guess = expert_settings(BASELINE, space, make_facts(), usable_cpus=16)
    assert space.contains(guess)
    assert (guess.batch_size, guess.num_workers) == (64, 4)
    assert guess.precision is Precision.FP16


def test_an_expert_trusts_no_emulated_bf16_and_needs_no_workers_for_resident_data(
    make_facts: Make,
) -> None:
    device = replace(make_facts().device, native_bf16=None)
    facts = make_facts(device=device, resident=True, image_input=False)
    guess = expert_settings(BASELINE, SPACE, facts, usable_cpus=8)
    assert (guess.precision, guess.num_workers, guess.channels_last) == (
        Precision.DEFAULT,
        0,
        False,
    )


def measured(stall_share: float, **changes: Any) -> Measurement:
    settings = Settings(**{"batch_size": 64, **changes})
    return make_measurement(settings, stall_share=stall_share)


STEPS = SearchSpace(
    values={
        "batch_size": (64, 128),
        "num_workers": (0, 4, 8),
        "pin_memory": (False, True),
        "prefetch_factor": (2, 4),
        "precision": (Precision.DEFAULT, Precision.TF32, Precision.BF16),
        "compile": (CompileMode.OFF, CompileMode.DEFAULT),
    },
    fixed=Settings(batch_size=64),
)


def test_steps_of_a_job_that_waits_for_data_begin_with_the_loader() -> None:
    best = measured(0.6, num_workers=4, prefetch_factor=2)
    steps = [step.describe(best.settings) for step in steps_from(best, STEPS)]
    assert steps == [
        "num_workers=8",
        "batch_size=128",
        "prefetch_factor=4",
        "pin_memory=true",
        "precision=bf16",
        "compile=default",
    ]


def test_steps_of_a_job_that_does_not_wait_begin_with_the_device() -> None:
    best = measured(0.01)
    steps = [step.describe(best.settings) for step in steps_from(best, STEPS)]
    assert steps == [
        "precision=bf16",
        "batch_size=128",
        "compile=default",
        "num_workers=4 prefetch_factor=2",
        "pin_memory=true",
    ]


def test_no_step_leads_out_of_the_space() -> None:
    top = {"batch_size": 128, "num_workers": 8, "pin_memory": True, "prefetch_factor": 4}
    best = measured(0.6, **top, precision=Precision.BF16, compile=CompileMode.DEFAULT)
    assert list(steps_from(best, STEPS)) == []
    outside = measured(0.01, batch_size=48, precision=Precision.FP16)
    assert all(STEPS.contains(step) for step in steps_from(outside, STEPS))
