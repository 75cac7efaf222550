"""The default data: real photographs as JPEG files, made once on this machine.

Imports no torch at module level, so that the controller can make the files.
"""

from __future__ import annotations

import bisect
import functools
import io
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageEnhance

from autotune.environment import usable_cpus
from autotune.errors import OutputError, config_error
from autotune.paths import cache_folder

if TYPE_CHECKING:
    from autotune.workloads.images import ImageFiles

Progress = Callable[[int, int], None]
"""Called with the number of photos that exist and the number that is wanted."""

IMAGENET_SAMPLES = 1_281_167
"""Training images of ImageNet-1k."""

SIZE = (500, 375)
"""Width and height in pixels, those of a typical ImageNet file."""

_RECIPE = 1
"""Counts changes of how a photo is made; each has its own cache folder."""
_CLASSES = 1000
_TARGET_BYTES = 95_000
"""Size aimed at; near the top, a step of JPEG quality changes it by up to 27 %: 83 to 107 KB."""
_QUALITIES = range(88, 101)
_INTACT_BYTES = 40_000
"""Far below any photo. A crash of the machine may leave an empty file behind."""


def photos(
    files: int = 2000, samples: int = IMAGENET_SAMPLES, seed: int = 0, size: int = 224
) -> ImageFiles:
    """Return a dataset of the size of ImageNet over real JPEG files, with the usual transforms.

    It stands for training from local files that fit in memory: decoding, cropping and collating
    cost what they cost with ImageNet, and so does shuffling its index. It does not stand for slow
    storage: a few thousand files stay in the page cache. Labels are made from the index, so there
    is nothing to learn.

    Args:
        files: Distinct files.
        samples: Length of the dataset; sample `i` reads file `i % files`.
        seed: Seed of the files.
        size: Height and width of the crop in pixels.

    Raises:
        ConfigError: A number that is too small.
        OutputError: The files cannot be made.
    """
    from autotune.workloads.images import ImageFiles, training_transforms

    _require("data.samples", samples, 1)
    _require("data.size", size, 1)
    folder = ensure_photos(files, seed)
    return ImageFiles(
        folder,
        [_file_name(index) for index in range(files)],
        samples=samples,
        classes=_CLASSES,
        transform=training_transforms(size),
    )


def ensure_photos(files: int, seed: int, progress: Progress | None = None) -> Path:
    """Make the photos that do not exist yet, on all usable processors, and return their folder.

    Every photo depends on its number and the seed alone and appears at once, whole. So processes
    that make them at the same time, or one that was stopped half way, do no harm.

    Args:
        files: Photos wanted, at least 1.
        seed: Seed of the crops, 0 or more.
        progress: Called while photos are made; never if all of them exist.

    Raises:
        ConfigError: `files` or `seed` is too small.
        OutputError: The cache folder cannot be written.
    """
    _require("data.files", files, 1)
    _require("data.seed", seed, 0)
    folder = cache_folder() / "photos" / f"recipe{_RECIPE}-seed{seed}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = _missing(folder, files)
        if missing:
            _make_all(folder, missing, files, seed, progress)
    except OSError as error:
        raise OutputError(
            f"cannot make the photos of data=photos in {folder}: {error.strerror or error}. "
            f"They need about {files * _TARGET_BYTES / 1e6:.0f} MB. Free some space, or "
            "set AUTOTUNE_CACHE to a folder that can be written."
        ) from error
    return folder


def _missing(folder: Path, files: int) -> list[int]:
    with os.scandir(folder) as entries:
        intact = {entry.name for entry in entries if entry.stat().st_size >= _INTACT_BYTES}
    return [index for index in range(files) if _file_name(index) not in intact]


def _make_all(
    folder: Path, missing: Sequence[int], files: int, seed: int, progress: Progress | None
) -> None:
    # Threads, since Pillow works outside the interpreter's lock for most of the time, and new
    # processes would take longer to start than they save.
    from sklearn.datasets import load_sample_images

    sources = [Image.fromarray(pixels) for pixels in load_sample_images().images]

    def make(index: int) -> None:
        path = folder / _file_name(index)
        # Another process may have made it in the meantime.
        if not (path.exists() and path.stat().st_size >= _INTACT_BYTES):
            _write_whole(path, _photo(sources, index, seed))

    with ThreadPoolExecutor(usable_cpus()) as pool:
        pending = [pool.submit(make, index) for index in missing]
        try:
            for done, future in enumerate(as_completed(pending), files - len(missing) + 1):
                future.result()
                if progress is not None:
                    progress(done, files)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _photo(sources: Sequence[Image.Image], index: int, seed: int) -> bytes:
    """Return the JPEG of one photo: a random part of a source, flipped, brighter or darker."""
    rng = random.Random(f"{seed}-{index}")
    source = sources[index % len(sources)]
    scale = rng.uniform(0.7, 1.0) * min(source.width / SIZE[0], source.height / SIZE[1])
    width, height = SIZE[0] * scale, SIZE[1] * scale
    left = rng.uniform(0, source.width - width)
    top = rng.uniform(0, source.height - height)
    part = source.resize(
        SIZE, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height)
    )
    if rng.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    part = ImageEnhance.Brightness(part).enhance(rng.uniform(0.8, 1.2))
    encode = functools.cache(functools.partial(_jpeg, part))
    reached = bisect.bisect_left(
        _QUALITIES[1:-1], _TARGET_BYTES, key=lambda quality: len(encode(quality))
    )
    around = (encode(quality) for quality in _QUALITIES[reached : reached + 2])
    return min(around, key=lambda content: abs(len(content) - _TARGET_BYTES))


def _jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _file_name(index: int) -> str:
    return f"{index:06d}.jpg"


def _require(key: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise config_error(key, value, f"a whole number of {least} or more")
