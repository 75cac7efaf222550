from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune.measurement import CompileReport, FailureKind, NumericsReport
from autotune.objective import infeasible
from autotune.result import TrialRecord
from autotune.search.exclusions import Exclusions, lacks_memory
from autotune.search.space import SearchSpace
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


@pytest.mark.parametrize("kind", [FailureKind.WORKER_DIED, FailureKind.HANG])
def test_workers_that_failed_twice_leave_none_of_them(
    make_failure: Make, kind: FailureKind
) -> None:
    first = make_failure(replace(PLAIN, num_workers=4), kind, number=3)
    exclusions = taught(first)
    assert exclusions.removed == {}, "once may be chance"
    exclusions.learn(make_failure(replace(PLAIN, num_workers=8), kind, number=5))
    what = str(kind).replace("_", " ")
    assert exclusions.removed == {"num_workers of 1 or more": f"{what} in trials 3 and 5"}
    assert exclusions.reason(WORKERS) is not None
    assert exclusions.reason(PLAIN) is None


def test_only_as_many_workers_as_never_worked_are_removed(
    make_failure: Make, make_measured: Make
) -> None:
    exclusions = taught(
        make_measured(replace(PLAIN, num_workers=2)),
        make_failure(replace(PLAIN, num_workers=8), FailureKind.WORKER_DIED, number=1),
        make_failure(replace(PLAIN, num_workers=16), FailureKind.WORKER_DIED, number=2),
    )
    assert list(exclusions.removed) == ["num_workers of 8 or more"]
    assert exclusions.reason(replace(PLAIN, num_workers=4)) is None


def test_workers_that_worked_are_not_to_blame_for_a_death(
    make_failure: Make, make_measured: Make
) -> None:
    many = replace(PLAIN, num_workers=8)
    deaths = [
        make_failure(replace(many, pin_memory=pin), FailureKind.WORKER_DIED)
        for pin in (True, False)
    ]
    assert taught(make_measured(many), *deaths).removed == {}


def test_what_cannot_be_sent_to_workers_needs_no_second_trial(make_failure: Make) -> None:
    record = make_failure(WORKERS, FailureKind.UNSUPPORTED)
    told = replace(record, outcome=replace(record.outcome, setting="num_workers"))
    assert list(taught(told).removed) == ["num_workers of 1 or more"]


def test_a_dataset_error_is_never_blamed_on_a_value(make_failure: Make) -> None:
    errors = [
        make_failure(replace(FANCY, num_workers=n), FailureKind.DATASET_ERROR) for n in (1, 2, 4)
    ]
    assert taught(*errors).removed == {}


def test_a_batch_that_fails_for_another_reason_is_an_upper_bound(
    make_failure: Make, make_measured: Make
) -> None:
    large = replace(PLAIN, batch_size=4096)
    exclusions = taught(make_measured(PLAIN), make_failure(large, FailureKind.USER_ERROR))
    assert list(exclusions.removed) == ["batch_size of 4096 or more"]
    assert exclusions.reason(replace(PLAIN, batch_size=8192, precision=Precision.BF16)) is not None
    assert exclusions.reason(replace(PLAIN, batch_size=2048)) is None
    assert not exclusions.lacks_memory(large)


def test_a_tail_that_cannot_be_trained_removes_that_batch_size_only(make_failure: Make) -> None:
    record = make_failure(PLAIN, FailureKind.BAD_SETTING)
    told = replace(record, outcome=replace(record.outcome, setting="batch_size"))
    assert list(taught(told).removed) == ["batch_size=64"]


def test_a_crash_must_come_twice(make_failure: Make, make_measured: Make) -> None:
    pinned = replace(PLAIN, pin_memory=True)
    exclusions = taught(make_measured(PLAIN), make_failure(pinned, FailureKind.CRASH))
    assert exclusions.removed == {}
    exclusions.learn(make_failure(replace(pinned, batch_size=32), FailureKind.CRASH))
    assert list(exclusions.removed) == ["pin_memory=true"]


def test_a_trial_without_the_likeliest_suspect_settles_who_is_to_blame(
    make_failure: Make, make_measured: Make
) -> None:
    space = SearchSpace(
        {
            "precision": (Precision.DEFAULT, Precision.BF16),
            "channels_last": (False, True),
            "fused_optimizer": (False, True),
        },
        fixed=PLAIN,
    )
    exclusions = taught(make_measured(PLAIN), make_failure(FANCY, FailureKind.USER_ERROR))
    settling = next(exclusions.blame.settling(space))
    assert settling == replace(FANCY, precision=Precision.DEFAULT)
    exclusions.learn(make_measured(settling))
    assert list(exclusions.removed) == ["precision=bf16"]
    assert list(exclusions.blame.settling(space)) == []


def test_what_was_not_compiled_removes_the_mode(make_measured: Make) -> None:
    report = CompileReport(compile_s=1.0, graph_breaks={}, not_compiled="torch's limit")
    record = make_measured(replace(FANCY, compile=CompileMode.DEFAULT))
    outcome = replace(record.outcome, compilation=report)
    found = replace(record, outcome=outcome, score=None, infeasible=infeasible(outcome))
    assert "not compiled, with compile=default: torch's limit" in (found.infeasible or "")
    assert taught(found).removed == {"compile=default": "not compiled in trial 0"}
