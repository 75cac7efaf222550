"""A model under settings: measured in a trial and used from `tuned.yaml` in the same way."""

from __future__ import annotations

from typing import cast

import torch

from autotune.precision import set_float32_modes
from autotune.settings import CompileMode, Settings


def prepare_model(model: torch.nn.Module, settings: Settings) -> torch.nn.Module:
    """Return the model in its memory format, compiled where the settings say so.

    Sets torch's float32 and cuDNN modes for the whole process. The parameters stay the same
    objects, so an optimizer may be built before or after.

    Args:
        model: On its device already.
        settings: What it is to run with.
    """
    set_float32_modes(settings.precision)
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if settings.compile is CompileMode.OFF:
        return model
    return cast(torch.nn.Module, torch.compile(model, mode=str(settings.compile)))
