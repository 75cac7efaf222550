"""A workload under one setting: model, optimizer and precision in place, ready to step."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import torch

from autotune.errors import NonFiniteLoss, WorkloadError
from autotune.measure.timers import Mark, PhaseTimer
from autotune.measure.window import StepSeen
from autotune.precision import autocast, check_supported, fused_obeys_scaler, grad_scaler
from autotune.settings import CompileMode, Settings
from autotune.trial.first_steps import FirstSteps, SkipCounter, StepWatch
from autotune.trial.pulse import Pulse
from autotune.workloads.batch import batch_size_of, fingerprint, to_device
from autotune.workloads.forward import forward_loss
from autotune.workloads.model import prepare_model
from autotune.workloads.trainable import (
    check_gradients,
    check_loss,
    check_model,
    check_optimizer,
)
from autotune.workloads.workload import Workload


class TrainingJob:
    """Trains one step at a time, the way a plain loop would.

    Args:
        workload: What is trained.
        settings: How.
        device: Where.
        seed: Seed of the weights.
        watched_steps: Steps of which `first_steps` can tell.
        pulse: Told of each step; None for nobody.

    Raises:
        UnsupportedSetting: The device or the optimizer cannot run one of the settings.
        WorkloadError: The user's part fails.
    """

    def __init__(
        self,
        workload: Workload,
        settings: Settings,
        device: torch.device,
        seed: int,
        watched_steps: int = 0,
        pulse: Pulse | None = None,
    ) -> None:
        check_supported(settings.precision, device.type)
        self._workload = workload
        self._settings = settings
        self._device = device
        torch.manual_seed(seed)
        if isinstance(workload.loss, torch.nn.Module):
            workload.loss.to(device)  # class weights and the like
        built = workload.build_model()
        self._weights = fingerprint(built.state_dict()) if watched_steps else ""
        model = built.to(device).train()
        check_model(model)
        self._model = prepare_model(model, settings)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self._optimizer = workload.build_optimizer(
            model.parameters(), fused=settings.fused_optimizer
        )
        check_optimizer(self._optimizer)
        self._scaler = grad_scaler(settings.precision, device.type)
        self._watch = StepWatch(watched_steps, model.parameters())
        self._skips = SkipCounter(self._optimizer) if self._scaler.is_enabled() else None
        self._first_scale = self._scaler.get_scale()
        self._pulse = Pulse() if pulse is None else pulse
        self.steps_taken = 0
        self.last_loss: torch.Tensor | None = None

    def step(self, batches: Iterator[Any], timer: PhaseTimer) -> StepSeen:
        """Run one optimizer step on the next batch and mark its phases.

        Args:
            batches: Where the next batch comes from.
            timer: Gets the boundaries of the step.
        """
        asked = time.perf_counter()
        batch = next(batches)
        host_wait_s = time.perf_counter() - asked
        timer.mark(Mark.FETCHED)
        batch = to_device(batch, self._device, channels_last=self._settings.channels_last)
        timer.mark(Mark.COPIED)
        if self._settings.compile is not CompileMode.OFF:
            # CUDA graphs reuse their outputs' memory; this says that the old ones are done with.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with autocast(self._settings.precision, self._device.type):
            loss = forward_loss(self._workload, self._model, batch)
        timer.mark(Mark.FORWARD)
        if self.steps_taken == 0:
            check_loss(loss)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._watch.see(loss)
        timer.mark(Mark.BACKWARD)
        if self.steps_taken == 0:
            check_gradients(self._optimizer)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        if self._skips is not None:
            self._skips.end_step()
        self._optimizer.zero_grad(set_to_none=True)
        timer.mark(Mark.OPTIMIZER)
        self.last_loss = loss.detach()
        self.steps_taken += 1
        self._pulse.step()
        return StepSeen(batch_size_of(batch), host_wait_s)

    def place(self, batch: Any) -> Any:
        """Return the batch on the device, in this job's memory format."""
        return to_device(batch, self._device, channels_last=self._settings.channels_last)

    def first_steps(self, steps: int) -> FirstSteps:
        """Return what at most `steps` of the watched steps came to, and watch no more of them.

        Waits for the device.
        """
        self._watch.stop()
        norms = self._watch.norms(steps)
        skipped = None if self._skips is None else self._skips.flags(0, len(norms))
        scale, scales = self._first_scale, []
        for left_out in skipped or (False,) * len(norms):
            scales.append(scale)  # it grows only after thousands of steps
            scale *= self._scaler.get_backoff_factor() if left_out else 1.0
        return FirstSteps(
            losses=self._watch.losses(steps),
            gradient_norms=tuple(norm / by for norm, by in zip(norms, scales, strict=True)),
            skipped=skipped,
            weights=self._weights,
        )

    def skipped_steps(self, since: int) -> int | None:
        """Return how many steps from number `since` on GradScaler skipped; None without one.

        Waits for the device.
        """
        return None if self._skips is None else sum(self._skips.flags(since))

    @property
    def fused_obeys_scaler(self) -> bool:
        """Whether the optimizer's fused kernel can be used with a GradScaler."""
        return fused_obeys_scaler(self._optimizer)

    def parameters_finite(self) -> bool:
        """Return whether no parameter is infinite or not a number. Waits for the device."""
        largest = torch.nn.utils.get_total_norm(
            [value.detach() for value in self._model.parameters()], norm_type=math.inf
        )
        return bool(torch.isfinite(largest))

    def loss_value(self) -> float | None:
        """Return the last step's loss as a number. Waits for the device.

        Raises:
            NonFiniteLoss: It is infinite or not a number.
            WorkloadError: It is more than one number.
        """
        if self.last_loss is None:
            return None
        if self.last_loss.numel() != 1:
            raise WorkloadError(
                f"loss: got a tensor of shape {tuple(self.last_loss.shape)}; "
                "allowed: one number. Reduce it, for example with .mean()."
            )
        value = float(self.last_loss)
        if not math.isfinite(value):
            raise NonFiniteLoss(
                f"the loss is {value} after {self.steps_taken} steps with "
                f"precision={self._settings.precision}"
            )
        return value
