from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.measurement import NumericsReport
from autotune.settings import Precision
from autotune.trial.first_steps import FirstSteps
from autotune.trial.judge import Reference, compare, judge_alone, tolerance

FALLING = (7.0, 6.0, 5.0, 4.0, 3.0, 2.0)
PLAIN = Reference(
    losses=FALLING,
    again=tuple(1.0001 * loss for loss in FALLING),
    gradient_norm=2.0,
    gradient_norm_again=2.0,
    random=False,
)


def alone(
    losses: tuple[float, ...] = FALLING,
    norm: float = 2.0,
    skipped: tuple[bool, ...] | None = None,
    *,
    finite: bool = True,
    window_skipped: int | None = None,
) -> NumericsReport:
    first = FirstSteps(
        losses=losses, gradient_norms=(norm,) * len(losses), skipped=skipped, weights=""
    )
    return judge_alone(
        first, parameters_finite=finite, window_steps=100, window_skipped=window_skipped
    )


def test_tolerances_follow_the_unit_roundoff() -> None:
    assert tolerance(Precision.BF16, "cuda") == 8 * 2**-8
    assert tolerance(Precision.FP16, "cuda") == tolerance(Precision.TF32, "cuda") == 8 * 2**-11
    assert tolerance(Precision.DEFAULT, "cuda") == tolerance(Precision.TF32, "cuda")
    assert tolerance(Precision.DEFAULT, "cpu") == tolerance(Precision.FP32, "cuda") == 1e-3


def test_rounding_passes_and_is_told() -> None:
    near = tuple(1.01 * loss for loss in FALLING)
    found = compare(alone(near), PLAIN, tolerance(Precision.BF16, "cuda"))
    assert found.failed is None
    assert found.difference == pytest.approx(0.01)
    assert found.tolerance == pytest.approx(8 * 2**-8 + 4 * 0.0001)
    assert found.reference == FALLING
    strict = compare(alone(near), PLAIN, tolerance(Precision.FP32, "cuda"))
    assert strict.failed is not None
    assert "allowed 0.14%" in strict.failed


@pytest.mark.parametrize("factor", [0.5, 2.0, -1.0])
def test_a_scaled_loss_fails(factor: float) -> None:
    found = compare(alone(tuple(factor * loss for loss in FALLING)), PLAIN, 0.03)
    assert found.failed is not None
    assert "7 in fp32 eager" in found.failed


def test_a_flat_curve_fails_where_the_reference_falls() -> None:
    found = compare(alone((7.0,) * 6), PLAIN, 0.03)
    assert found.failed is not None
    assert "after 5 steps" in found.failed


def test_missing_gradients_fail_even_where_the_loss_hardly_falls() -> None:
    slow = replace(PLAIN, losses=(7.0, 6.9999), again=(7.0, 6.9999))
    found = compare(alone((7.0, 7.0), norm=0.0), slow, 0.03)
    assert found.failed is not None
    assert found.failed.startswith("the gradient's norm at the first step is 0, and 2 in fp32")
    assert compare(alone((7.0, 7.0), norm=1.9), slow, 0.03).failed is None


def test_chaos_widens_late_steps_and_not_the_first() -> None:
    wild = replace(
        PLAIN, losses=(7.0, 7.0, 20.0, 50.0), again=(7.0, 7.01, 22.0, 30.0), gradient_norm=None
    )
    late = compare(alone((7.0, 7.0, 19.0, 75.0)), wild, 0.03)
    assert late.failed is None
    assert compare(alone((8.0, 7.0, 19.0, 75.0)), wild, 0.03).failed is not None
    assert compare(alone((7.0, 7.0, 35.0, 75.0)), wild, 0.03).failed is not None


def test_random_numbers_widen_the_first_steps_too() -> None:
    lucky = replace(PLAIN, losses=(7.0, 6.0, 5.0), again=(7.0, 6.35, 5.1), random=True)
    dropout = (7.5, 6.4, 5.2)
    assert compare(alone(dropout), lucky, 0.03).failed is None
    assert compare(alone(dropout), replace(lucky, random=False), 0.03).failed is not None
    assert compare(alone((14.0, 12.0, 10.0)), lucky, 0.03).failed is not None


def test_a_loss_that_falls_to_zero_is_no_division_by_it() -> None:
    reference = replace(PLAIN, losses=(1.0, 0.1, 0.0), again=(1.0, 0.1, 0.0))
    assert compare(alone((1.0, 0.1, 0.001)), reference, 0.03).failed is None
    nothing = replace(PLAIN, losses=(0.0,), again=(0.0,))
    assert compare(alone((0.0,)), nothing, 0.03).difference == 0.0


def test_a_reference_that_is_not_finite_decides_nothing() -> None:
    found = compare(alone(), replace(PLAIN, losses=(None,), again=(1.0,)), 0.03)
    assert found.failed is None
    assert found.unchecked == "the loss of the fp32 job itself is not finite"
    short = compare(alone(), replace(PLAIN, losses=(7.0, None), again=(7.0, 6.0)), 0.03)
    assert short.reference == (7.0,)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_fails_without_a_reference(broken: float) -> None:
    found = alone((7.0, broken))
    assert found.failed == f"the loss is {broken} after 1 step on one batch"
    assert found.losses == (7.0, None)
    gradient = alone(norm=broken)
    assert gradient.failed == f"the gradient's norm is {broken} at the first step"
    assert gradient.gradient_norm is None
    assert alone(finite=False).failed is not None
    assert alone().failed is None


def test_skipped_steps_are_counted_and_no_failure() -> None:
    found = alone((7.0, *FALLING), skipped=(True,) + (False,) * 6, window_skipped=3)
    assert found.failed is None
    assert found.skipped_steps == 1
    assert compare(found, PLAIN, 0.004).difference == 0.0


def test_nothing_but_skipped_steps_fail_unless_the_window_had_few() -> None:
    stuck = alone((7.0,) * 4, skipped=(True,) * 4, window_skipped=100)
    assert stuck.failed is not None
    assert "all of the first 4 steps and 100 of 100 in the window" in stuck.failed
    settled = alone((7.0,) * 4, skipped=(True,) * 4, window_skipped=2)
    assert settled.failed is None
    assert settled.unchecked == "GradScaler skipped all of the first 4 steps"
