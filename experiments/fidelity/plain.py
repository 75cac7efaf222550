"""A training loop as anybody would write it by hand, timed with a stopwatch.

Nothing here measures but two synchronisations and a clock.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.models import get_model

from autotune.settings import Precision, Settings
from autotune.workloads.photos import photos


def plain_rate(settings: Settings, model_name: str, device: str, seconds: float) -> float:
    """Train for some seconds and return the samples per second.

    Args:
        settings: As in a trial.
        model_name: A model of torchvision.
        device: Such as cuda.
        seconds: Timed; what the workers prepare before is used up untimed.
    """
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    if settings.precision is Precision.FP32:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    model = get_model(model_name, weights=None).to(device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    loader = DataLoader(
        photos(),
        batch_size=settings.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=settings.num_workers,
        pin_memory=settings.pin_memory,
        prefetch_factor=settings.prefetch_factor,
        persistent_workers=settings.persistent_workers,
    )

    def settle() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    # As many batches as the workers can hold ready, and some more, are not counted.
    unmeasured = 3 + 2 * settings.num_workers * (settings.prefetch_factor or 0)
    samples = done = 0
    started = 0.0
    while True:
        for images, labels in loader:
            if done == unmeasured:
                settle()
                started, samples = time.perf_counter(), 0
            images = images.to(device, memory_format=layout, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            with torch.autocast(
                device.split(":")[0], torch.bfloat16, enabled=settings.precision is Precision.BF16
            ):
                loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            samples += len(labels)
            done += 1
            if done > unmeasured and time.perf_counter() - started > seconds:
                settle()
                return samples / (time.perf_counter() - started)
