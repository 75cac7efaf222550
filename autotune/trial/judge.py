"""Whether the first losses under a setting are those of the plain fp32 job, rounding granted.

**Rounding at a step** is allowed `max(MIN_TOLERANCE, ROUNDINGS * u)` of the loss, with the unit
roundoff `u` of the precision (`unit_roundoff`). Errors of n independent roundings add up to about
`sqrt(n) * u` (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.8), so
`ROUNDINGS` = 8 is for 64 roundings in a row, the depth of the usual networks. This gives 3.1 % for
bf16, 0.4 % for fp16 and tf32, 0.1 % for fp32: torch's own checks grant 1.6 % to bf16 and 0.1 % to
fp16 for a single operation (`torch.testing.assert_close`), and to whole models under training 0.1 %
in fp32 on CUDA and up to 1 % under amp (benchmarks/dynamo/torchbench.py in pytorch).

**What the job makes of it** over the steps depends on the job: at a high learning rate it throws a
rounding error far within a few steps, and dropout draws other masks under another kernel. So this
is measured: the reference runs once more from weights that differ by up to one `u` of bf16 (what
casting them does), its random numbers drawn anew. `SPREAD_FACTOR` times the largest distance of the
two so far is added to what is allowed. Early steps are thus judged strictly and, where the job is
chaotic, late ones loosely. The factor: there is one such distance, of a random size, and a setting
rounds at each layer and not only the weights. Where the job draws random numbers, the first
`SETTLING` steps share their largest distance: a single one may be small by chance, and the loss
before any step is strict only where nothing is drawn.

Seen on a CPU in bf16 over 8 steps at batch 16 (ResNet-18 and MobileNetV3 at 64 pixels, a small
transformer with dropout; SGD at 0.01 to 1, AdamW): at most 0.04 % apart at the first step, and at
most 1.3 % later, of 3.3 to 7 % allowed; at a learning rate of 1, where the loss runs up from 7 to
50, 45 % of 111 %, and plain fp32 in another memory format 22 %.

**The gradient** at the first step is held against the reference's by its norm, within a factor of
`GRADIENT_FACTOR` and what the second run shows: this is not about rounding, it is to see gradients
that are missing or scaled, whatever the learning rate is.

Differences of losses are relative to the largest loss of the reference so far, so that one that
falls to 0 is no division by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autotune.measurement import NumericsReport
from autotune.settings import Precision
from autotune.trial.first_steps import FirstSteps

BF16_ROUNDOFF = 2.0**-8
"""bfloat16 has 8 significant bits, the hidden one included: half a unit in the last place."""

_TF32_ROUNDOFF = 2.0**-11  # 11 significant bits, as binary16 has (NVIDIA A100 whitepaper)
_FP32_ROUNDOFF = 2.0**-24  # 24 significant bits (IEEE 754 binary32)

_ROUNDOFF = {
    Precision.BF16: BF16_ROUNDOFF,
    Precision.FP16: 2.0**-11,  # 11 significant bits (IEEE 754 binary16)
    Precision.TF32: _TF32_ROUNDOFF,
    Precision.FP32: _FP32_ROUNDOFF,
}

ROUNDINGS = 8.0
"""Unit roundoffs allowed at a step."""

MIN_TOLERANCE = 1e-3
"""Least relative difference allowed: compiled kernels and other algorithms add in another order."""

SPREAD_FACTOR = 4.0
"""Times that the distance of the two reference runs is allowed."""

SETTLING = 4
"""First steps of a job with random numbers that share the largest distance of its two runs."""

GRADIENT_FACTOR = 2.0
"""The norm of the gradient lies between this part and this multiple of the reference's."""

MAX_SKIPPED = 0.5
"""Share of the window's steps that GradScaler may skip, after it skipped each of the first steps
too. In the long run it skips one in 2000 (its `growth_interval`), and a few at the start."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The plain job's first steps in strict fp32, eager, twice.

    Attributes:
        losses: Loss of each step.
        again: The same from moved weights, with other random numbers.
        gradient_norm: Norm of the gradient at the first step.
        gradient_norm_again: The same of the second run.
        random: The steps draw random numbers, as dropout does.
    """

    losses: tuple[float | None, ...]
    again: tuple[float | None, ...]
    gradient_norm: float | None
    gradient_norm_again: float | None
    random: bool


def unit_roundoff(precision: Precision, device_type: str) -> float:
    """Return the largest relative error of one rounding in the products of a precision.

    `default` is fp32, but torch leaves tf32 on for convolutions on CUDA.
    """
    if precision is Precision.DEFAULT:
        return _FP32_ROUNDOFF if device_type == "cpu" else _TF32_ROUNDOFF
    return _ROUNDOFF[precision]


def tolerance(precision: Precision, device_type: str) -> float:
    """Return the relative difference of the loss that rounding may make at a step."""
    return max(MIN_TOLERANCE, ROUNDINGS * unit_roundoff(precision, device_type))


def judge_alone(
    first: FirstSteps, *, parameters_finite: bool, window_steps: int, window_skipped: int | None
) -> NumericsReport:
    """Return what the setting's own steps tell, without a reference.

    Args:
        first: The first steps.
        parameters_finite: All parameters are finite at the end.
        window_steps: Steps in the timed window.
        window_skipped: Of these, GradScaler skipped so many; None without a GradScaler.
    """
    curve, norm, skipped = first.curve, first.gradient_norm, first.skipped
    failed = unchecked = None
    broken = next((i for i, loss in enumerate(curve) if not math.isfinite(loss)), None)
    if broken is not None:
        failed = f"the loss is {curve[broken]} after {_steps(broken)} on one batch"
    elif skipped and all(skipped):
        unchecked = f"GradScaler skipped all of the first {_steps(len(skipped))}"
        if window_skipped is None or window_skipped >= MAX_SKIPPED * window_steps:
            failed = f"{unchecked} and {window_skipped} of {window_steps} in the window"
    elif norm is not None and not math.isfinite(norm):
        failed = f"the gradient's norm is {norm} at the first step"
    elif not parameters_finite:
        failed = "a parameter is infinite or not a number at the end: some gradient was"
    return NumericsReport(
        losses=tuple(loss if math.isfinite(loss) else None for loss in curve),
        gradient_norm=norm if norm is not None and math.isfinite(norm) else None,
        skipped_steps=None if skipped is None else sum(skipped),
        failed=failed,
        unchecked=unchecked,
    )


def compare(alone: NumericsReport, reference: Reference, allowed: float) -> NumericsReport:
    """Return the report with the comparison in it.

    Args:
        alone: What the setting's own steps tell, with finite losses.
        reference: What they are held against.
        allowed: Relative difference that rounding may make at a step (`tolerance`).
    """
    losses = [loss for loss in alone.losses if loss is not None]
    pairs = zip(losses, reference.losses, reference.again, strict=False)
    known = [(x, y, z) for x, y, z in pairs if y is not None and z is not None]
    if not known:
        return replace(alone, unchecked="the loss of the fp32 job itself is not finite")
    scales = [max(abs(y) for _, y, _ in known[: i + 1]) or 1.0 for i in range(len(known))]
    spread = [abs(z - y) / scale for (_, y, z), scale in zip(known, scales, strict=True)]
    least = SETTLING if reference.random else 1
    limits = [allowed + SPREAD_FACTOR * max(spread[: max(i + 1, least)]) for i in range(len(known))]
    apart = [abs(x - y) / scale for (x, y, _), scale in zip(known, scales, strict=True)]
    worst = max(range(len(known)), key=lambda i: apart[i] / limits[i])
    failed = None
    if apart[worst] > limits[worst]:
        failed = (
            f"the loss after {_steps(worst)} on one batch is {known[worst][0]:.4g}, and "
            f"{known[worst][1]:.4g} in fp32 eager: {apart[worst]:.2%} apart, "
            f"allowed {limits[worst]:.2%}"
        )
    return replace(
        alone,
        reference=tuple(y for _, y, _ in known),
        again=tuple(z for _, _, z in known),
        difference=apart[worst],
        tolerance=limits[worst],
        reference_norm=reference.gradient_norm,
        failed=failed or _gradient(alone.gradient_norm, reference),
    )


def _gradient(norm: float | None, reference: Reference) -> str | None:
    """Return why the norm of the gradient speaks against a setting, or None."""
    plain, again = reference.gradient_norm, reference.gradient_norm_again
    if norm is None or not plain or not again:
        return None
    factor = GRADIENT_FACTOR * max(plain / again, again / plain)
    if plain / factor <= norm <= plain * factor:
        return None
    return (
        f"the gradient's norm at the first step is {norm:.4g}, and {plain:.4g} in fp32 eager: "
        f"allowed {plain / factor:.4g} to {plain * factor:.4g}"
    )


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"
