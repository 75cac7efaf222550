"""What a job's first steps tell of its numbers, kept on the device until somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class FirstSteps:
    """Losses and gradients of a job's first steps on one batch.

    Attributes:
        losses: Loss of each step, skipped ones included.
        gradient_norms: Norm of the whole gradient at each step, its scale taken out.
        skipped: Whether GradScaler skipped each step; None without a GradScaler.
        weights: Fingerprint of the weights that the first step started from.
    """

    losses: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    skipped: tuple[bool, ...] | None
    weights: str

    @property
    def curve(self) -> tuple[float, ...]:
        """Loss after 0, 1, 2... steps that were taken: a skipped step leaves the weights alone."""
        before = (False, *(self.skipped or (False,) * len(self.losses)))
        return tuple(
            loss for loss, unmoved in zip(self.losses, before, strict=False) if not unmoved
        )

    @property
    def gradient_norm(self) -> float | None:
        """Norm of the gradient at the first step that was taken; None where all were skipped."""
        skipped = self.skipped or (False,) * len(self.losses)
        norms = zip(self.gradient_norms, skipped, strict=True)
        return next((norm for norm, left_out in norms if not left_out), None)


class StepWatch:
    """Keeps losses and gradient norms of the first steps. It never waits for the device.

    Args:
        steps: Steps to keep; 0 for none.
        parameters: Whose gradients.
    """

    def __init__(self, steps: int, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._left = steps
        self._parameters = list(parameters)
        self._losses: list[torch.Tensor] = []
        self._norms: list[torch.Tensor] = []

    def see(self, loss: torch.Tensor) -> None:
        """Take in a step whose gradients are computed and not used yet.

        The loss is copied: with CUDA graphs the next step overwrites it.
        """
        if self._left <= 0:
            return
        self._left -= 1
        self._losses.append(loss.detach().clone())
        gradients = [parameter.grad for parameter in self._parameters]
        # A sparse gradient of an embedding has no norm that torch computes.
        dense = [g for g in gradients if g is not None and g.layout is torch.strided]
        self._norms.append(torch.nn.utils.get_total_norm(dense))

    def stop(self) -> None:
        """Look at no further step."""
        self._left = 0

    def losses(self, steps: int) -> tuple[float, ...]:
        """Return the losses of the first steps. Waits for the device."""
        return tuple(float(loss) for loss in self._losses[:steps])

    def norms(self, steps: int) -> tuple[float, ...]:
        """Return the norms of the gradients of the first steps. Waits for the device."""
        return tuple(float(norm) for norm in self._norms[:steps])


class SkipCounter:
    """Tells which optimizer steps GradScaler skipped, without waiting for the device.

    GradScaler either leaves out the call of `optimizer.step`, or calls a fused optimizer with
    `optimizer.found_inf` set, for the kernel to obey. A hook after the step sees both.

    Args:
        optimizer: Stepped by GradScaler.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._flags: list[bool | torch.Tensor] = []
        self._flag: bool | torch.Tensor = True
        optimizer.register_step_post_hook(self._stepped)

    def end_step(self) -> None:
        """Close a step: `scaler.step(optimizer)` has returned."""
        self._flags.append(self._flag)
        self._flag = True  # until the optimizer is called

    def flags(self, start: int = 0, stop: int | None = None) -> tuple[bool, ...]:
        """Return for each step from `start` on whether it was skipped. Waits for the device."""
        return tuple(map(bool, _on_host(self._flags[start:stop])))

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._flag = getattr(optimizer, "found_inf", False)


def _on_host(flags: Sequence[bool | torch.Tensor]) -> list[bool | float]:
    """Return the flags as plain values, with one copy for all that lie on the device."""
    tensors = [flag for flag in flags if isinstance(flag, torch.Tensor)]
    values = iter(torch.stack(tensors).tolist() if tensors else ())
    return [next(values) if isinstance(flag, torch.Tensor) else flag for flag in flags]
