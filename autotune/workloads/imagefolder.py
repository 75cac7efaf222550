"""The user's own image folder: one folder per class.

Imports no torch at module level, so that the controller can check the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import ConfigError, config_error

if TYPE_CHECKING:
    from torch.utils.data import Dataset

_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What torchvision's ImageFolder reads."""
_LAYOUT = "a folder with one sub-folder of images per class, such as root/cat/1.jpg"


def imagefolder(root: str, size: int = 224) -> Dataset[Any]:
    """Return torchvision's ImageFolder with the usual training transforms.

    Args:
        root: Folder with one sub-folder per class; relative to the current folder.
        size: Height and width of the crop in pixels.

    Raises:
        ConfigError: As `check_imagefolder`.
    """
    from torchvision.datasets import ImageFolder

    from autotune.workloads.images import training_transforms

    dataset: Dataset[Any] = ImageFolder(
        str(check_imagefolder(root)), transform=training_transforms(size), loader=read_image
    )
    return dataset


def read_image(path: str) -> Any:
    """Return the image in a file, as RGB.

    Raises:
        OSError: It cannot be read; the message names the file, which Pillow's does not.
    """
    from torchvision.datasets.folder import default_loader

    try:
        return default_loader(path)
    except OSError as error:
        raise OSError(f"{path} cannot be read ({error}). Remove or replace it.") from None


def check_imagefolder(root: str | None) -> Path:
    """Check an image folder without reading all of it, and return its absolute path.

    It lists the classes, looks for one image in each and opens the first one.

    Raises:
        ConfigError: The folder or an image is missing or cannot be read; names `data.root`.
    """
    if not isinstance(root, str) or not root:
        raise config_error("data.root", root, _LAYOUT)
    folder = Path(root).expanduser().absolute()
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise config_error("data.root", root, f"{_LAYOUT}; found {what}")
    try:
        _check_classes(root, folder)
    except OSError as error:
        raise ConfigError(
            f"data.root: cannot read {error.filename or folder}: {error.strerror or error}. "
            "Make it readable for this user, or give another folder."
        ) from error
    return folder


def _check_classes(root: str, folder: Path) -> None:
    with os.scandir(folder) as entries:
        classes = sorted(entry.path for entry in entries if entry.is_dir())
    if not classes:
        raise config_error("data.root", root, f"{_LAYOUT}; found no sub-folder")
    firsts = [next(_images(path), None) for path in classes]
    empty = [path for path, first in zip(classes, firsts, strict=True) if first is None]
    if empty:
        raise ConfigError(
            f"data.root: no image in {len(empty)} of the {len(classes)} class folders in "
            f"{folder}, {os.path.basename(empty[0])!r} among them. Allowed: {_LAYOUT}; image "
            f"files end in {', '.join(_EXTENSIONS)}."
        )
    _check_image(str(firsts[0]))


def _check_image(path: str) -> None:
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
    except OSError as error:
        if error.filename:  # it could not be opened at all
            raise
        raise ConfigError(
            f"data.root: {path} is not an image that Pillow can read ({error}). "
            "Remove or replace it."
        ) from error


def _images(folder: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    # Links are followed, as ImageFolder does; its errors are not ours to swallow.
    for parent, _, names in os.walk(folder, onerror=refuse, followlinks=True):
        yield from (
            os.path.join(parent, name) for name in names if name.lower().endswith(_EXTENSIONS)
        )
