"""Whether a setting learns what the plain fp32 job learns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NumericsReport:
    """The first losses on one batch, beside those of fp32 eager from the same weights.

    Attributes:
        losses: Loss under the setting after 0, 1, 2... optimizer steps that were not skipped; None
            where it is not finite.
        reference: The same in strict fp32, eager, for as many steps as were compared; empty where
            nothing was.
        again: The reference once more, its weights moved by a unit roundoff of bfloat16 and its
            random numbers drawn anew: what rounding and chance do to this job.
        difference: Relative difference of the step that came nearest to what is allowed, or was
            farthest beyond it; None without a reference.
        tolerance: What was allowed at that step; None without a reference.
        gradient_norm: Norm of the whole gradient at the first step that was not skipped; None where
            all were, or it is not finite.
        reference_norm: The same of the reference; None without one.
        skipped_steps: Steps that GradScaler skipped meanwhile; None without a GradScaler.
        failed: Why the setting must not be used; None if nothing speaks against it.
        unchecked: Why nothing was compared; None if it was.
    """

    losses: tuple[float | None, ...]
    reference: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    difference: float | None = None
    tolerance: float | None = None
    gradient_norm: float | None = None
    reference_norm: float | None = None
    skipped_steps: int | None = None
    failed: str | None = None
    unchecked: str | None = None
