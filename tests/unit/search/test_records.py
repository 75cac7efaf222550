from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import OutputError, StudyError
from autotune.measurement import FailureKind, JobFacts
from autotune.result import TrialRecord
from autotune.search.records import (
    check_unused,
    load_facts,
    load_records,
    write_facts,
    write_record,
)
from autotune.settings import Settings

SETTINGS = Settings(batch_size=8, num_workers=1, prefetch_factor=2)


def test_records_come_back_as_they_were(
    tmp_path: Path,
    make_measured: Callable[..., TrialRecord],
    make_failure: Callable[..., TrialRecord],
) -> None:
    records = (
        make_measured(SETTINGS, 123.25, number=0),
        make_failure(SETTINGS, FailureKind.CRASH, number=1),
    )
    for record in reversed(records):
        (tmp_path / record.folder).mkdir(parents=True)
        write_record(tmp_path, record)
    (tmp_path / "trials" / "0002").mkdir()  # in flight: it has no record
    assert load_records(tmp_path) == records
    names = [path.name for path in (tmp_path / "trials" / "0000").iterdir()]
    assert names == ["record.json"], "no temporary file is left"


def test_a_study_without_trials_has_no_records(tmp_path: Path) -> None:
    assert load_records(tmp_path) == ()


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_measured: Callable[..., TrialRecord]
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    record = make_measured(SETTINGS)
    (tmp_path / record.folder).mkdir(parents=True)
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_record(tmp_path, record)
    assert list((tmp_path / record.folder).iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"number": "x"}'])
def test_a_broken_record_is_named(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "trials" / "0003"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(text)
    with pytest.raises(StudyError, match=r"0003/record\.json is not a record of autotune"):
        load_records(tmp_path)


def test_facts_come_back(tmp_path: Path, make_facts: Callable[..., JobFacts]) -> None:
    assert load_facts(tmp_path) is None
    facts = make_facts()
    write_facts(tmp_path, facts)
    assert load_facts(tmp_path) == facts


def test_a_used_folder_is_told_from_an_unused_one(tmp_path: Path) -> None:
    check_unused(tmp_path)
    (tmp_path / "study.db").touch()
    with pytest.raises(StudyError, match="holds a study already"):
        check_unused(tmp_path)
