from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune.measurement import FailureKind, NumericsReport
from autotune.result import TrialRecord
from autotune.search.exclusions import Exclusions, lacks_memory
from autotune.settings import CompileMode, Precision, Settings

Make = Callable[..., TrialRecord]
PLAIN = Settings(batch_size=64)
WORKERS = Settings(batch_size=64, num_workers=2, prefetch_factor=4)
FANCY = Settings(batch_size=64, precision=Precision.BF16, channels_last=True, fused_optimizer=True)


def taught(*records: TrialRecord) -> Exclusions:
    exclusions = Exclusions()
    for record in records:
        exclusions.learn(record)
    return exclusions


def test_lack_of_memory_rules_out_what_is_as_large_or_larger(make_failure: Make) -> None:
    exclusions = taught(make_failure(WORKERS, FailureKind.OUT_OF_MEMORY))
    for larger in (
        WORKERS,
        replace(WORKERS, batch_size=128),
        replace(WORKERS, num_workers=4),
        replace(WORKERS, prefetch_factor=8),
        replace(WORKERS, num_workers=4, prefetch_factor=None),
        replace(WORKERS, persistent_workers=True),
    ):
        assert exclusions.lacks_memory(larger), larger
        assert "batch 64 ran out of memory" in (exclusions.reason(larger) or "")


@pytest.mark.parametrize(
    "other",
    [
        replace(WORKERS, batch_size=32),
        replace(WORKERS, num_workers=1),
        replace(WORKERS, prefetch_factor=2),
        PLAIN,
        replace(WORKERS, batch_size=128, precision=Precision.BF16),
        replace(WORKERS, batch_size=128, pin_memory=True),
    ],
)
def test_lack_of_memory_says_nothing_of_the_rest(make_failure: Make, other: Settings) -> None:
    exclusions = taught(make_failure(WORKERS, FailureKind.OUT_OF_MEMORY))
    assert exclusions.reason(other) is None


def test_a_measurement_at_the_limit_of_memory_counts_as_lack_of_it(make_measured: Make) -> None:
    record = make_measured(PLAIN, alloc_retries=2, infeasible="retried")
    assert lacks_memory(record)
    assert taught(record).lacks_memory(replace(PLAIN, batch_size=128))


def test_a_loss_that_is_no_number_is_no_lack_of_memory(make_measured: Make) -> None:
    record = make_measured(FANCY, last_loss=float("nan"), infeasible="not a number")
    exclusions = taught(record)
    assert not lacks_memory(record)
    assert exclusions.blame.removed == {("precision", "bf16"): "non finite in trial 0"}
    read_back = make_measured(FANCY, last_loss=None, infeasible="not a number")
    assert not lacks_memory(read_back)


def test_other_numbers_than_fp32_put_all_arithmetic_under_suspicion(make_measured: Make) -> None:
    differs = NumericsReport(losses=(5.0,), reference=(7.0,), difference=0.3, failed="differs")
    record = make_measured(FANCY, infeasible="differs", numerics=differs)
    assert not lacks_memory(record)
    assert taught(record).blame.removed == {}
    fused = make_measured(replace(PLAIN, fused_optimizer=True), number=1)
    images = make_measured(replace(PLAIN, channels_last=True), number=2)
    assert taught(record, fused, images).blame.removed == {
        ("precision", "bf16"): "other numbers than fp32 in trial 0"
    }


@pytest.mark.parametrize("kind", [FailureKind.COMPILE_FAILED, FailureKind.TIME_LIMIT])
def test_a_compile_mode_that_fails_is_removed(make_failure: Make, kind: FailureKind) -> None:
    compiled = replace(FANCY, compile=CompileMode.MAX_AUTOTUNE)
    exclusions = taught(make_failure(compiled, kind, stage="compile"))
    assert list(exclusions.blame.removed) == [("compile", "max-autotune")]
    reason = exclusions.reason(replace(PLAIN, compile=CompileMode.MAX_AUTOTUNE))
    assert reason is not None
    assert reason.startswith("compile=max-autotune does not work here")
    assert exclusions.reason(replace(PLAIN, compile=CompileMode.DEFAULT)) is None


def test_a_compile_mode_that_worked_elsewhere_stays(
    make_failure: Make, make_measured: Make
) -> None:
    compiled = replace(PLAIN, compile=CompileMode.DEFAULT)
    larger = replace(compiled, batch_size=128)
    exclusions = taught(make_measured(compiled), make_failure(larger, FailureKind.COMPILE_FAILED))
    assert exclusions.blame.removed == {}


def test_a_time_limit_outside_of_compiling_removes_nothing(make_failure: Make) -> None:
    compiled = replace(FANCY, compile=CompileMode.MAX_AUTOTUNE)
    for settings in (FANCY, compiled):
        assert taught(make_failure(settings, FailureKind.TIME_LIMIT)).blame.removed == {}


def test_a_model_that_raises_under_autocast_loses_that_precision_only(
    make_failure: Make, make_measured: Make
) -> None:
    autocast = replace(PLAIN, precision=Precision.BF16)
    exclusions = taught(make_measured(PLAIN), make_failure(autocast, FailureKind.USER_ERROR))
    assert list(exclusions.blame.removed) == [("precision", "bf16")]


def test_two_suspects_are_kept_until_one_of_them_works(
    make_failure: Make, make_measured: Make
) -> None:
    exclusions = taught(make_failure(FANCY, FailureKind.UNSUPPORTED))
    assert exclusions.blame.removed == {}
    exclusions.learn(make_measured(replace(PLAIN, precision=Precision.BF16)))
    assert exclusions.blame.removed == {}
    exclusions.learn(make_measured(replace(PLAIN, channels_last=True)))
    assert list(exclusions.blame.removed) == [("fused_optimizer", True)]
    assert exclusions.reason(replace(PLAIN, fused_optimizer=True)) is not None
    assert exclusions.reason(PLAIN) is None


def test_non_finite_blames_the_precision(make_failure: Make) -> None:
    exclusions = taught(make_failure(FANCY, FailureKind.NON_FINITE))
    assert list(exclusions.blame.removed) == [("precision", "bf16")]


@pytest.mark.parametrize(
    "kind", [FailureKind.WORKER_DIED, FailureKind.CRASH, FailureKind.USER_ERROR]
)
def test_other_failures_remove_nothing(make_failure: Make, kind: FailureKind) -> None:
    exclusions = taught(make_failure(replace(FANCY, compile=CompileMode.DEFAULT), kind))
    assert exclusions.blame.removed == {}
    assert exclusions.reason(FANCY) is None
