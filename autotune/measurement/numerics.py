"""Whether a setting learns what the plain fp32 job learns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NumericsReport:
    """The first losses on one batch, beside those of fp32 eager from the same weights.

    Attributes:
        losses: Loss of each step under the setting.
        reference: Loss of each step in strict fp32, eager; empty where it could not run.
        tolerance: Largest relative difference allowed.
        difference: Largest relative difference seen; None without a reference.
        skipped_steps: Steps that GradScaler skipped meanwhile; None without a GradScaler.
        failed: Why the setting must not be used; None if nothing speaks against it.
        unchecked: Why there is no reference; None if there is one.
    """

    losses: tuple[float, ...]
    reference: tuple[float, ...] = ()
    tolerance: float
    difference: float | None = None
    skipped_steps: int | None = None
    failed: str | None = None
    unchecked: str | None = None
