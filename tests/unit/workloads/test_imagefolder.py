import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from autotune.errors import ConfigError
from autotune.workloads.imagefolder import check_imagefolder, imagefolder, read_image


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, colour in (("cat", "red"), ("dog", "blue")):
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.new("RGB", (40, 30), colour).save(tmp_path / "train" / name / "1.JPG", "JPEG")
    return tmp_path / "train"


def refused(root) -> str:
    with pytest.raises(ConfigError) as caught:
        check_imagefolder(root)
    return str(caught.value)


def test_reads_images_and_classes(root: Path):
    dataset = imagefolder(str(root), size=16)
    assert len(dataset) == 2
    image, label = dataset[1]
    assert (tuple(image.shape), label) == ((3, 16, 16), 1)


def test_relative_to_the_current_folder(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(root.parent)
    assert check_imagefolder("train") == root


def test_images_deeper_down_count(root: Path):
    (root / "cat" / "deep").mkdir()
    shutil.move(root / "cat" / "1.JPG", root / "cat" / "deep" / "1.JPG")
    assert check_imagefolder(str(root)) == root


@pytest.mark.parametrize("missing", [None, "", 3])
def test_no_root(missing):
    assert f"data.root: got {missing!r}; allowed: a folder with one sub-folder" in refused(missing)


def test_missing_root(root: Path):
    text = refused(str(root / "trian"))
    assert text.startswith("data.root: got ")
    assert "nothing there" in text


def test_root_that_is_a_file(root: Path):
    assert "found a file" in refused(str(root / "cat" / "1.JPG"))


def test_no_class_folders(root: Path):
    assert "found no sub-folder" in refused(str(root / "cat"))


def test_class_without_images(root: Path):
    (root / "dog" / "1.JPG").rename(root / "dog" / "1.txt")
    text = refused(str(root))
    assert "no image in 1 of the 2 class folders" in text
    assert "'dog'" in text
    assert ".webp" in text


@pytest.mark.parametrize("keep", [0, 10, 400])
def test_image_that_cannot_be_decoded(root: Path, keep: int):
    path = root / "cat" / "1.JPG"
    path.write_bytes(path.read_bytes()[:keep])
    text = refused(str(root))
    assert text.startswith(f"data.root: {path} is not an image")


def test_unreadable_folder(root: Path, monkeypatch: pytest.MonkeyPatch):
    # Permissions do not bind root, under which tests often run; so the system's answer is played.
    real = os.scandir

    def scandir(path):
        if str(path).endswith("dog"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    text = refused(str(root))
    assert f"data.root: cannot read {root / 'dog'}: Permission denied" in text


def test_an_image_that_cannot_be_read_later_is_named(root: Path):
    path = root / "cat" / "1.JPG"
    assert read_image(str(path)).mode == "RGB"
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(OSError, match=rf"{path} cannot be read \(.+\)\. Remove or replace it"):
        read_image(str(path))
