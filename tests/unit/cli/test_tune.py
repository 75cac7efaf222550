from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import make_result

import autotune.launch.local
import autotune.tracking
import autotune.tuner
import autotune.workloads.photos
from autotune.__main__ import main
from autotune.errors import OutputError, TrackingError, WorkloadError
from autotune.result import StudyEnd, StudyResult
from autotune.tracking.tracker import NoTracker

TINY = ["model=tiny", "data=tiny", "tracking=none"]


class FakeTracker(NoTracker):
    """Remembers how the parent run was closed."""

    def __init__(self) -> None:
        self.artifacts: tuple[str, ...] | None = None
        self.aborted: tuple[str, bool] | None = None

    def finish(self, result: StudyResult, artifacts: tuple[str, ...]) -> None:
        self.artifacts = artifacts

    def abort(self, reason: str, *, killed: bool) -> None:
        self.aborted = (reason, killed)

    def view(self) -> str | None:
        return "mlflow ui --backend-store-uri x"


class FakeStudy:
    """Stands in for the tuner: what it was given, and what its run does."""

    def __init__(self) -> None:
        self.tracker = FakeTracker()
        self.given: dict[str, Any] = {}
        self.run: Callable[[], StudyResult] = make_result

    def make_tuner(self, config: object, **given: Any) -> FakeStudy:
        self.given = {"config": config, **given}
        return self


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStudy:
    fake = FakeStudy()
    monkeypatch.setattr(autotune.tuner, "Tuner", fake.make_tuner)
    monkeypatch.setattr(autotune.launch.local, "LocalLauncher", lambda: "launcher")
    monkeypatch.setattr(autotune.tracking, "make_tracker", lambda config, output: fake.tracker)
    monkeypatch.chdir(tmp_path)
    return fake


def failing(error: BaseException) -> Callable[[], StudyResult]:
    def run() -> StudyResult:
        raise error

    return run


def test_a_study_ends_with_files_a_closed_run_and_a_table(
    study: FakeStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "study.name=first"]) == 0
    (folder,) = (tmp_path / "autotune_runs").iterdir()
    assert folder.name.startswith("first-20")
    assert sorted(path.name for path in folder.iterdir()) == [
        "study.lock",
        "summary.md",
        "tuned.yaml",
    ]
    assert study.tracker.artifacts == (str(folder / "tuned.yaml"), str(folder / "summary.md"))
    assert study.tracker.aborted is None
    text = capsys.readouterr().out
    assert "| samples/s" in text
    assert str(folder / "tuned.yaml") in text
    assert "mlflow ui --backend-store-uri x" in text
    assert "mlflow ui --backend-store-uri x" in (folder / "summary.md").read_text()


def test_the_tuner_gets_the_folder_and_the_config_as_text(study: FakeStudy) -> None:
    assert main([*TINY, "budget.minutes=7"]) == 0
    assert study.given["config"].budget.minutes == 7
    assert "minutes: 7" in study.given["config_text"]
    assert study.given["folder"].is_absolute()
    assert study.given["launcher"] == "launcher"


def test_an_interrupted_study_with_a_result_is_a_success(
    study: FakeStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.run = lambda: make_result(ended=StudyEnd.INTERRUPTED, confirmation=None)
    assert main(TINY) == 0
    assert list(tmp_path.glob("autotune_runs/*/tuned.yaml"))
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WorkloadError("the job fails"), 1),
        (TrackingError("no answer"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_study_without_a_result_leaves_nothing(
    study: FakeStudy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    study.run = failing(error)
    assert main(TINY) == code
    assert list(tmp_path.iterdir()) == []
    assert str(error) in capsys.readouterr().err


def test_a_bug_of_ours_is_not_hidden(study: FakeStudy) -> None:
    study.run = failing(ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        main(TINY)


def test_files_that_cannot_be_written_abort_the_run(
    study: FakeStudy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(tuned: object, path: Path) -> None:
        raise OutputError(f"{path}: no space left")

    monkeypatch.setattr("autotune.export.write_tuned", fail)
    assert main(TINY) == 1
    assert study.tracker.aborted is not None
    assert not study.tracker.aborted[1]
    assert "no space left" in capsys.readouterr().err


def test_sigterm_is_an_interrupt_while_the_study_runs(study: FakeStudy) -> None:
    def run() -> StudyResult:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        return make_result(ended=StudyEnd.INTERRUPTED, confirmation=None)

    before = signal.getsignal(signal.SIGTERM)
    study.run = run
    assert main(TINY) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_file_in_the_way_of_the_output_is_told_before_anything_runs(
    study: FakeStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").touch()
    assert main([*TINY, "output.dir=runs"]) == 1
    assert "output.dir: cannot write to" in capsys.readouterr().err
    assert study.given == {}


def test_photos_are_made_first_with_their_progress(
    study: FakeStudy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def ensure(files: int, seed: int, progress: Callable[[int, int], None]) -> None:
        asked.append((files, seed))
        progress(0, files)
        progress(files, files)

    monkeypatch.setattr(autotune.workloads.photos, "ensure_photos", ensure)
    assert main(["model=tiny", "tracking=none", "data.files=8", "data.seed=3"]) == 0
    assert asked == [(8, 3)]
    assert "8 of 8" in capsys.readouterr().out


def test_image_folder_is_checked_before_any_trial(
    study: FakeStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model=tiny", "data=imagefolder", "data.root=nowhere"]) == 2
    assert "data.root" in capsys.readouterr().err
    assert study.given == {}
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_resume(study: FakeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "study.resume=true"]) == 1
    assert "there is no study" in capsys.readouterr().err


def test_resume_goes_on_in_the_same_folder(study: FakeStudy, tmp_path: Path) -> None:
    assert main(TINY) == 0
    assert main([*TINY, "study.resume=true"]) == 0
    assert len(list((tmp_path / "autotune_runs").iterdir())) == 1
