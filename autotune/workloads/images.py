"""The usual ImageNet training pipeline for files: decode, crop, flip, normalise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def training_transforms(size: int = 224) -> Callable[[Image.Image], torch.Tensor]:
    """Return torchvision's reference training transforms, from a PIL image to a float tensor.

    The crop is resized while it is still a PIL image of bytes: less work than as floats.

    Args:
        size: Height and width of the result, in pixels.
    """
    transforms: Callable[[Image.Image], torch.Tensor] = v2.Compose(
        [
            v2.RandomResizedCrop(size, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    return transforms


class ImageFiles(Dataset[tuple[torch.Tensor, int]]):
    """A long dataset whose samples share a limited number of files.

    Attributes:
        folder: Folder of the files.
        names: File names; sample `i` reads `names[i % len(names)]`.
        samples: Length of the dataset.
        classes: The label of sample `i` is `i % classes`.
        transform: Turns a decoded image into a tensor.
    """

    def __init__(
        self,
        folder: Path,
        names: list[str],
        *,
        samples: int,
        classes: int,
        transform: Callable[[Image.Image], Any],
    ) -> None:
        self.folder = folder
        self.names = names
        self.samples = samples
        self.classes = classes
        self.transform = transform

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        with Image.open(self.folder / self.names[index % len(self.names)]) as image:
            return self.transform(image.convert("RGB")), index % self.classes
