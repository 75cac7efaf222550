from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from autotune.cli.folder import study_folder
from autotune.errors import ConfigError, OutputError, StudyError

NOW = datetime(2026, 11, 30, 22, 15, 3)


def test_new_folder_has_name_and_time(tmp_path: Path) -> None:
    with study_folder(tmp_path / "runs", "resnet50", resume=False, now=NOW) as folder:
        assert folder == tmp_path / "runs" / "resnet50-20261130-221503"
        (folder / "kept").touch()
    assert (folder / "kept").exists()


def test_two_studies_in_one_second(tmp_path: Path) -> None:
    with (
        study_folder(tmp_path, "a", resume=False, now=NOW) as first,
        study_folder(tmp_path, "a", resume=False, now=NOW) as second,
    ):
        assert second.name == f"{first.name}-2"


def test_early_failure_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        study_folder(tmp_path / "runs", "a", resume=False, now=NOW),
    ):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_nothing_but_scaffold_goes_and_one_with_the_jobs_words_stays(
    tmp_path: Path,
) -> None:
    with study_folder(tmp_path, "a", resume=False, now=NOW) as folder:
        (folder / "study.lock").touch()
        (folder / "facts.json").write_text("{}")
        (folder / "inspection").mkdir()
        (folder / "inspection" / "log.txt").touch()
    assert not folder.exists()
    with study_folder(tmp_path, "a", resume=False, now=NOW) as folder:
        (folder / "log.txt").write_text("Fatal Python error: Segmentation fault")
    assert folder.exists()
    with study_folder(tmp_path, "a", resume=True, now=NOW) as again:
        (again / "log.txt").unlink()
    assert folder.exists(), "only what this run has made is its to remove"


def test_output_folder_that_was_there_stays(tmp_path: Path) -> None:
    with study_folder(tmp_path, "a", resume=False, now=NOW):
        pass
    assert tmp_path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_resume_takes_the_newest_of_exactly_that_name(tmp_path: Path) -> None:
    for name in ("a-20260101-000000", "a-20260102-000000", "a-b-20270101-000000", "a-notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.db").touch()
    with study_folder(tmp_path, "a", resume=True, now=NOW) as folder:
        assert folder.name == "a-20260102-000000"
    assert folder.exists()


def test_a_study_that_another_works_on_is_not_resumed(tmp_path: Path) -> None:
    with study_folder(tmp_path, "a", resume=False, now=NOW) as folder:
        with (
            pytest.raises(StudyError, match="another autotune is at work"),
            study_folder(tmp_path, "a", resume=True, now=NOW),
        ):
            pass
        (folder / "kept").touch()
    with study_folder(tmp_path, "a", resume=True, now=NOW) as again:
        assert again == folder


def test_nothing_to_resume(tmp_path: Path) -> None:
    with (
        pytest.raises(StudyError, match=r"no study 'a'.*study\.resume=false"),
        study_folder(tmp_path / "runs", "a", resume=True, now=NOW),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with (
        pytest.raises(OutputError, match=r"output\.dir: cannot write to .*runs"),
        study_folder(tmp_path / "runs" / "deeper", "a", resume=False, now=NOW),
    ):
        pass


def test_folder_that_cannot_be_written() -> None:
    with (  # not even for root
        pytest.raises(OutputError, match=r"output\.dir: cannot write to /proc"),
        study_folder(Path("/proc/autotune"), "a", resume=False, now=NOW),
    ):
        pass


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "", "a b"])
def test_name_that_is_no_folder(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(ConfigError, match=r"study\.name"),
        study_folder(tmp_path, name, resume=False, now=NOW),
    ):
        pass
