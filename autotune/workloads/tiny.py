"""A job that takes seconds on two cores: for tests, demonstrations and a first look."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.utils.data import Dataset


def tiny_model(classes: int = 1000, width: int = 16) -> nn.Module:
    """Return a small convolutional network for images of any size.

    Args:
        classes: Number of outputs; the default serves the labels of every `data` choice.
        width: Channels of the convolutions.
    """
    return nn.Sequential(
        nn.Conv2d(3, width, kernel_size=3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )


class TinyImages(Dataset[tuple[torch.Tensor, int]]):
    """Images of 3 x `size` x `size` whose mean tells their label.

    Attributes:
        samples: Length of the dataset.
        size: Height and width in pixels.
        classes: Number of labels.
        delay_ms: Milliseconds of waiting per sample, to imitate decoding.
        seed: Seed of the images.
    """

    def __init__(self, samples: int, size: int, classes: int, delay_ms: float, seed: int) -> None:
        self.samples = samples
        self.size = size
        self.classes = classes
        self.delay_ms = delay_ms
        self.seed = seed

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        if self.delay_ms:
            time.sleep(self.delay_ms / 1e3)
        label = index % self.classes
        noise = torch.Generator().manual_seed(self.seed * self.samples + index)
        image = torch.randn(3, self.size, self.size, generator=noise)
        return image + label / self.classes, label


def tiny_images(
    samples: int = 2048, size: int = 32, classes: int = 10, delay_ms: float = 0.0, seed: int = 0
) -> TinyImages:
    """Return small images made on the fly; the arguments are those of `TinyImages`."""
    return TinyImages(samples, size, classes, delay_ms, seed)
