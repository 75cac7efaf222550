"""Synthetic data that stay on the device: training as if data were free."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

from autotune.workloads.photos import IMAGENET_SAMPLES


class ResidentImages(Dataset[tuple[torch.Tensor, int]]):
    """Noise as normalised images. A probe makes one batch of it and keeps it on the device.

    Attributes:
        image_size: Height and width in pixels.
        classes: Number of labels.
    """

    def __init__(self, image_size: int, classes: int) -> None:
        self.image_size = image_size
        self.classes = classes

    def __len__(self) -> int:
        return IMAGENET_SAMPLES  # batch sizes are bounded by memory alone

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < IMAGENET_SAMPLES:
            raise IndexError(f"sample {index} of {IMAGENET_SAMPLES}")
        noise = torch.Generator().manual_seed(index)
        return torch.randn(3, self.image_size, self.image_size, generator=noise), (
            index % self.classes
        )


def resident(image_size: int = 224, classes: int = 1000) -> ResidentImages:
    """Return synthetic images for `data=resident`: no loader, no copy, the device alone.

    Args:
        image_size: Height and width in pixels.
        classes: Number of labels.
    """
    return ResidentImages(image_size, classes)
