"""Bad input to the real command: one message that names the key and the remedy, nothing left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import QUICK, Ended, run
from mlflow import MlflowClient
from PIL import Image

from autotune.errors import TunedFileError
from autotune.export import load_tuned

pytestmark = pytest.mark.slow

TINY = ("model=tiny", "data=tiny")
OWN = ("model._target_=small.build", "data._target_=small.Rows")
SPACE = ("search_space.num_workers=null", "search_space.precision=null")


def refused(ended: Ended, code: int, *says: str) -> None:
    """Check the exit code, and that one message was said, without a traceback of ours."""
    assert ended.code == code, ended
    assert ended.err.startswith("error: ")
    for text in says:
        assert text in ended.err
    assert "autotune/trial/" not in ended.err, "a traceback through our own code"


def left(folder: Path) -> set[str]:
    """Return the files in a folder, relative to it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model=resnet5O"], ["model: got 'resnet5O'", "Did you mean 'resnet50'?"]),
        (["model=tiny", "serach_space=loader"], ["serach_space", "'search_space'"]),
        (["model=tiny", "budget.minuts=3"], ["budget.minuts", "'minutes'"]),
        (["model=tiny", "budget.minutes=-3"], ["budget.minutes: got -3"]),
        (["model=tiny", "data=imagefolder"], ["data.root: has no value", "data.root=..."]),
        (
            ["model=tiny", "data=imagefolder", "data.root=/no/such/folder"],
            ["data.root: got '/no/such/folder'", "one sub-folder of images per class"],
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value[0], str) and "=" in value[0] else "",
)
def test_a_wrong_word_is_refused_before_anything_is_made(
    tmp_path: Path, words: list[str], says: list[str]
) -> None:
    refused(run(*words, folder=tmp_path), 2, *says)
    assert left(tmp_path) == set()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "found no sub-folder"),
        ({"cat/notes.txt": b"none yet"}, "no image in 1 of the 1 class folders"),
        ({"cat/1.jpg": b"not a jpeg"}, "cat/1.jpg is not an image that Pillow can read"),
    ],
    ids=["empty", "no image", "corrupt"],
)
def test_an_image_folder_that_cannot_serve(
    tmp_path: Path, files: dict[str, bytes], says: str
) -> None:
    (tmp_path / "images").mkdir()
    for name, content in files.items():
        path = tmp_path / "images" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    ended = run("model=tiny", "data=imagefolder", "data.root=images", folder=tmp_path)
    refused(ended, 2, "data.root: ", says)
    assert left(tmp_path) == {f"images/{name}" for name in files}


def test_a_corrupt_image_that_the_first_look_does_not_meet(tmp_path: Path) -> None:
    images = tmp_path / "images" / "cat"
    images.mkdir(parents=True)
    for number in range(8):
        Image.new("RGB", (40, 30), (number, 99, 7)).save(images / f"{number}.jpg")
    (images / "3.jpg").write_bytes((images / "3.jpg").read_bytes()[:200])
    ended = run(
        *("model=tiny", "data=imagefolder", "data.root=images", "data.size=32", *QUICK, *SPACE),
        folder=tmp_path,
    )
    refused(ended, 1, "dataset error", "3.jpg")
    assert not any(name.endswith("tuned.yaml") for name in left(tmp_path))


@pytest.mark.parametrize("place", ["a-file", "a-file/deeper", "/proc/autotune"])
def test_an_output_folder_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-file").write_text("mine")
    ended = run(*TINY, f"output.dir={place}", folder=tmp_path)
    refused(ended, 1, "output.dir: cannot write to", "output.dir=...")
    assert left(tmp_path) == {"a-file"}
    assert (tmp_path / "a-file").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model._target_=small.raises"], ["model: small.raises failed", "no such checkpoint"]),
        (["model._target_=small.returns_a_dict"], ["returned a dict; expected a torch.nn.Module"]),
        (["model._target_=small.leaves"], ["model: small.leaves failed", "it called sys.exit(3)"]),
        (["model._target_=small.bild"], ["small has no 'bild'", "Did you mean 'small.build'?"]),
        (["data._target_=small.a_loader"], ["data: got a DataLoader; expected its dataset"]),
        (["+data.samples=0"], ["data: the dataset is empty"]),
    ],
    ids=lambda value: value[0].partition("=")[2] if "=" in value[0] else "",
)
def test_a_job_that_cannot_be_built(tmp_path: Path, words: list[str], says: list[str]) -> None:
    refused(run(*OWN, *words, *QUICK, *SPACE, folder=tmp_path), 1, *says)
    assert left(tmp_path) == set()


def test_a_batch_above_the_dataset(tmp_path: Path) -> None:
    ended = run(*OWN, "+data.samples=7", *QUICK, *SPACE, folder=tmp_path)
    refused(ended, 2, "baseline.batch_size: got 8; allowed: at most 7")
    assert left(tmp_path) == set()


def test_a_job_that_chatters_and_moves_is_tuned_all_the_same(tmp_path: Path) -> None:
    job = ("model._target_=small.chatters", "data._target_=small.Rows", *QUICK, *SPACE)
    ended = run(*job, "search_space.batch_size=[8]", "tracking=none", folder=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "epoch after epoch" not in ended.out
    (study,) = (tmp_path / "autotune_runs").iterdir()
    assert (study / "tuned.yaml").exists()
    assert (study / "trials" / "0000" / "log.txt").stat().st_size < 1_100_000


def test_a_tracking_server_that_does_not_answer(tmp_path: Path) -> None:
    ended = run(*OWN, *QUICK, *SPACE, "tracking.uri=http://127.0.0.1:9", folder=tmp_path)
    refused(ended, 1, "tracking.uri: cannot use MLflow", "Connection refused", "tracking=none")
    assert left(tmp_path) == set()


@pytest.mark.parametrize(
    ("minutes", "data", "says"),
    [
        (0.001, ["data._target_=small.Rows"], []),
        (0.02, ["data._target_=small.SlowToOpen"], ["one plain step of the job was not trained"]),
        (0.4, ["data._target_=small.SlowToOpen"], ["the baseline took", "no time is left"]),
    ],
    ids=["at once", "in the first look", "after the baseline"],
)
def test_a_budget_that_is_too_small(
    tmp_path: Path, minutes: float, data: list[str], says: list[str]
) -> None:
    job = ("model._target_=small.build", *data, *QUICK, *SPACE, "tracking=none")
    ended = run(*job, f"budget.minutes={minutes}", folder=tmp_path)
    refused(ended, 1, "budget.minutes is too small", "Use budget.minutes=", *says)
    assert not any(name.endswith("tuned.yaml") for name in left(tmp_path))


def test_a_failed_study_leaves_no_run_open(tmp_path: Path) -> None:
    ended = run(*OWN, "model._target_=small.fails_later", *QUICK, *SPACE, folder=tmp_path)
    refused(ended, 1, "the baseline failed", "RuntimeError: step 5 of training")
    client = MlflowClient(f"sqlite:///{tmp_path / 'autotune_runs' / 'mlflow.db'}")
    runs = client.search_runs(["1"])
    assert [run.info.status for run in runs] == ["FAILED", "FAILED"]
    assert not any(name.endswith("tuned.yaml") for name in left(tmp_path))


def test_a_study_that_is_not_there_cannot_be_resumed(tmp_path: Path) -> None:
    ended = run(*TINY, "study.resume=true", folder=tmp_path)
    refused(ended, 1, "study.resume: there is no study 'tiny_model'", "study.resume=false")
    assert left(tmp_path) == set()


@pytest.mark.parametrize("text", ["settings: [", "", "schema_version: 1\nsettings: {}\n", "\xff"])
def test_a_corrupt_tuned_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TunedFileError, match=r"tuned\.yaml: .*(Correct it|study.resume=true)"):
        load_tuned(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize(
    ("free_bytes", "tracking"), [(0, "none"), (40_000, "none"), (700_000, "mlflow")]
)
def test_a_full_disk(small_disk: Path, tmp_path: Path, free_bytes: int, tracking: str) -> None:
    room = os.statvfs(small_disk)
    (small_disk / "others").write_bytes(b"." * (room.f_bavail * room.f_frsize - free_bytes))
    job = (*OWN, *QUICK, *SPACE, "search_space.batch_size=[8]", f"tracking={tracking}")
    ended = run(*job, "search.expert_guess=false", f"output.dir={small_disk}", folder=tmp_path)
    refused(ended, 1)
    # Which file is the first that does not fit differs by a few kilobytes of log from run to run.
    assert "No space left on device" in ended.err or "disk is full" in ended.err
    assert not any("tuned.yaml" in name for name in left(small_disk))
