"""Precision as a few hooks, so that no training loop needs an `if amp`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from autotune.errors import UnsupportedSetting
from autotune.settings import Precision

_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def set_float32_modes(precision: Precision) -> None:
    """Set, for this process, how float32 products are computed.

    `fp32` and `tf32` say it outright; the other precisions leave torch's own defaults (fp32 matrix
    products, tf32 convolutions on CUDA). These switches, rather than the `fp32_precision`
    attributes of torch 2.9, since torch refuses to mix the two and older code reads these.
    """
    if precision is Precision.TF32:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    elif precision is Precision.FP32:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False


def autocast(precision: Precision, device_type: str) -> AbstractContextManager[None]:
    """Return the context in which forward and loss run.

    Args:
        precision: What to cast to; the fp32 family gets a context that does nothing, as a loop
            without autocast has none to pay for.
        device_type: `cuda`, `xpu` or `cpu`.
    """
    dtype = _AUTOCAST.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device_type, dtype=dtype)


def grad_scaler(precision: Precision, device_type: str) -> torch.amp.GradScaler:
    """Return the loss scaler: it works for fp16 and passes everything through otherwise."""
    return torch.amp.GradScaler(device_type, enabled=precision is Precision.FP16)


def fused_obeys_scaler(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer's fused kernel can be used with a loss scaler.

    Torch's fused SGD allocates its momentum uninitialised and leaves it so when GradScaler skips
    the first step, as fp16 often makes it do: what follows is NaN, or noise. Seen with torch 2.11
    (CUDA) and 2.14.1 (CPU); LibreYOLO's pull request 771 met it in training.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        return True
    return not any(group["momentum"] for group in optimizer.param_groups)


def check_supported(precision: Precision, device_type: str) -> None:
    """Refuse a precision that this device would ignore or not run.

    Raises:
        UnsupportedSetting: tf32 or fp16 on a CPU.
    """
    if device_type == "cpu" and precision in (Precision.TF32, Precision.FP16):
        raise UnsupportedSetting(
            "precision",
            f"precision={precision} needs a CUDA or XPU device; this trial runs on the CPU. "
            "Use default, fp32 or bf16.",
        )
