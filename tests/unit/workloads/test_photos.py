import contextlib
import errno
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from PIL import Image

from autotune.errors import ConfigError, OutputError
from autotune.loader import build_loader, endless
from autotune.settings import Settings
from autotune.workloads import photos as module
from autotune.workloads.photos import ensure_photos, photos
from autotune.workloads.workload import Workload


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(cache))
        ensure_photos(24, 0)
    return cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestFiles:
    def test_have_the_size_of_imagenet_files(
        self, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("AUTOTUNE_CACHE", str(shared_cache))
        files = contents(ensure_photos(24, 0))
        sizes = [len(content) for content in files.values()]
        assert len(set(files.values())) == 24
        assert min(sizes) >= 80_000
        assert max(sizes) <= 110_000
        for name in files:
            with Image.open(ensure_photos(24, 0) / name) as image:
                assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (500, 375))
                image.load()

    def test_depend_on_number_and_seed_alone(self, cache: Path):
        two, three = contents(ensure_photos(2, 0)), contents(ensure_photos(3, 0))
        assert len(three) == 3
        assert two.items() <= three.items()
        other = contents(ensure_photos(2, 1))
        assert not set(other.values()) & set(three.values())

    def test_progress_counts_to_the_end_and_is_silent_when_all_exist(self, cache: Path):
        seen: list[tuple[int, int]] = []
        ensure_photos(1, 0)
        ensure_photos(4, 0, lambda done, wanted: seen.append((done, wanted)))
        assert seen == [(2, 4), (3, 4), (4, 4)]
        ensure_photos(4, 0, lambda done, wanted: pytest.fail("nothing was to be made"))

    def test_damaged_cache_is_repaired(self, cache: Path):
        folder = ensure_photos(4, 0)
        whole = contents(folder)
        (folder / "000001.jpg").unlink()
        (folder / "000002.jpg").write_bytes(b"")
        (folder / ".000003.jpg.123").write_bytes(b"left by a process that was killed")
        assert {k: v for k, v in contents(ensure_photos(4, 0)).items() if k in whole} == whole

    def test_can_be_made_twice_at_once(self, cache: Path):
        code = "from autotune.workloads.photos import ensure_photos; ensure_photos(6, 0)"
        both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
        assert [process.wait(timeout=60) for process in both] == [0, 0]
        assert len(contents(ensure_photos(6, 0))) == 6

    def test_interruption_leaves_whole_files_only(self, cache: Path):
        def interrupt(done: int, wanted: int) -> None:
            raise KeyboardInterrupt

        before = set(threading.enumerate())
        with pytest.raises(KeyboardInterrupt):
            ensure_photos(40, 0, interrupt)
        made = contents(cache / "photos" / "recipe1-seed0")
        assert 0 < len(made) < 40
        assert all(name.endswith(".jpg") and len(made[name]) > 80_000 for name in made)
        assert set(threading.enumerate()) <= before


class TestErrors:
    def test_cache_that_is_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        (tmp_path / "cache").write_text("")
        monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
        with pytest.raises(OutputError, match="Not a directory") as caught:
            ensure_photos(1, 0)
        assert str(tmp_path / "cache") in str(caught.value)
        assert "AUTOTUNE_CACHE" in str(caught.value)

    def test_full_disk(self, cache: Path, monkeypatch: pytest.MonkeyPatch):
        def full(path: Path, content: bytes) -> int:
            with path.open("wb") as file:
                file.write(content[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OutputError, match="No space left on device.*AUTOTUNE_CACHE"):
            ensure_photos(2, 0)
        assert contents(cache / "photos" / "recipe1-seed0") == {}

    @pytest.mark.parametrize(
        ("arguments", "key"),
        [
            ({"files": 0}, "data.files: got 0"),
            ({"files": "many"}, "data.files: got 'many'"),
            ({"seed": -1}, "data.seed: got -1"),
            ({"samples": 0}, "data.samples: got 0"),
            ({"size": 0}, "data.size: got 0"),
        ],
    )
    def test_bad_numbers(self, arguments, key: str, cache: Path):
        with pytest.raises(ConfigError, match=key):
            photos(**arguments)
        assert list(cache.iterdir()) == []


class TestDataset:
    @pytest.fixture(autouse=True)
    def _use_shared_cache(self, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AUTOTUNE_CACHE", str(shared_cache))

    def test_has_the_length_of_imagenet(self):
        dataset = photos(files=24)
        assert len(dataset) == 1_281_167
        image, label = dataset[1_281_166]
        assert label == 166
        assert image.shape == (3, 224, 224)
        assert image.dtype == torch.float32
        with pytest.raises(IndexError):
            dataset[1_281_167]

    def test_images_are_normalised(self):
        dataset = photos(files=24, size=64)
        pixels = torch.stack([dataset[index][0] for index in range(8)])
        lowest, highest = (0 - 0.485) / 0.229, (1 - 0.406) / 0.225
        assert lowest - 1e-4 <= pixels.min() < -1
        assert 1 < pixels.max() <= highest + 1e-4

    def test_indices_share_the_files(self):
        dataset = photos(files=3, samples=10)
        dataset.transform = lambda image: image.tobytes()
        assert dataset[1][0] == dataset[4][0]
        assert dataset[1][0] != dataset[2][0]
        assert (dataset[1][1], dataset[4][1]) == (1, 4)

    def test_can_be_sent_to_a_worker_of_any_start_method(self):
        dataset = pickle.loads(pickle.dumps(photos(files=24, size=32)))
        assert dataset[0][0].shape == (3, 32, 32)

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_real_files_through_a_loader(self, num_workers: int):
        work = Workload(
            dataset=photos(files=24, samples=1000, size=32),
            collate=None,
            build_model=torch.nn.Identity,
            loss=None,
            build_optimizer=torch.optim.SGD,
            shuffle=True,
            drop_last=True,
            resident=False,
        )
        loader = build_loader(work, Settings(batch_size=4, num_workers=num_workers), seed=3)
        order = torch.randperm(1000, generator=torch.Generator().manual_seed(3))
        with contextlib.closing(endless(loader)) as batches:
            for k in range(3):
                images, labels = next(batches)
                assert images.shape == (4, 3, 32, 32)
                assert labels.tolist() == order[4 * k : 4 * k + 4].tolist()


def test_the_controller_needs_no_torch(cache: Path):
    code = (
        "import sys, autotune.workloads.photos as p, autotune.workloads.imagefolder\n"
        "p.ensure_photos(1, 0); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_recipe_is_part_of_the_folder(cache: Path, monkeypatch: pytest.MonkeyPatch):
    first = ensure_photos(1, 0)
    monkeypatch.setattr(module, "_RECIPE", 2)
    assert ensure_photos(1, 0) != first
