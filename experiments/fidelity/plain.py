"""A training loop as anybody would write it by hand, timed with a stopwatch.

Nothing here measures but two synchronisations and a clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.models import get_model

from autotune.settings import Precision, Settings
from autotune.workloads.photos import photos

WARM_STEPS = 5


@dataclass(frozen=True)
class Plain:
    """What a plain loop came to.

    Attributes:
        samples_per_s: Over the timed part.
        ends_s: When the host was done with each timed step, seconds after the start.
    """

    samples_per_s: float
    ends_s: tuple[float, ...]


def train(settings: Settings, model_name: str, device: str, seconds: float) -> Plain:
    """Train as autotune's defaults say and tell how fast that went.

    Args:
        settings: As in a trial.
        model_name: A model of torchvision.
        device: Such as cuda.
        seconds: Timed; as many batches as the workers hold ready are used up untimed.
    """
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    if settings.precision is Precision.FP32:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    model = get_model(model_name, weights=None).to(device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
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

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        images = images.to(device, memory_format=layout, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(
            device.split(":")[0], torch.bfloat16, enabled=settings.precision is Precision.BF16
        ):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    # The first steps of a process are slow, and workers would fill their queues meanwhile: with a
    # device little faster than its loader, that surplus lasts for hundreds of steps. So the device
    # is warm before the first worker starts.
    for _ in range(WARM_STEPS):
        step(
            torch.randn(settings.batch_size, 3, 224, 224),
            torch.zeros(settings.batch_size, dtype=torch.long),
        )
    settle()
    unmeasured = 3 + settings.num_workers * (settings.prefetch_factor or 0)
    samples = done = 0
    started = 0.0
    ends_s: list[float] = []
    while True:
        for images, labels in loader:
            if done == unmeasured:
                settle()
                started = time.perf_counter()
            step(images, labels)
            done += 1
            if done <= unmeasured:
                continue
            samples += len(labels)
            ends_s.append(time.perf_counter() - started)
            if ends_s[-1] > seconds:
                settle()
                return Plain(samples / (time.perf_counter() - started), tuple(ends_s))
