"""Files of a study: a record for each finished trial, and the facts of the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from autotune.durable import write_whole
from autotune.errors import StudyError
from autotune.measurement import JobFacts
from autotune.result import TrialRecord

_T = TypeVar("_T")

DATABASE = "study.db"
"""Name of Optuna's database in the folder of a study."""

_TRIALS = "trials"
_RECORD = "record.json"
_FACTS = "facts.json"


def trial_folder(number: int) -> str:
    """Return the folder of a trial, relative to the study's."""
    return f"{_TRIALS}/{number:04d}"


def write_record(folder: Path, record: TrialRecord) -> None:
    """Write the record of a finished trial, whole or not at all.

    Args:
        folder: Folder of the study; the trial's own must exist in it.
        record: The finished trial.

    Raises:
        OutputError: The file cannot be written.
    """
    _write(folder / record.folder / _RECORD, TrialRecord, record)


def load_records(folder: Path) -> tuple[TrialRecord, ...]:
    """Return the finished trials of a study by their number, checked against their types.

    A trial without a record did not finish and is left out.

    Raises:
        StudyError: A record cannot be read, or does not say what it must.
    """
    records = [_read(path, TrialRecord) for path in sorted((folder / _TRIALS).glob(f"*/{_RECORD}"))]
    return tuple(sorted(records, key=lambda record: record.number))


def check_unused(folder: Path) -> None:
    """Refuse a folder that holds a study already.

    Raises:
        StudyError: There is a study.
    """
    if (folder / DATABASE).exists() or (folder / _TRIALS).exists():
        raise StudyError(
            f"{folder} holds a study already. study.resume=true continues it; another study.name "
            "or output.dir starts a new one."
        )


def write_facts(folder: Path, facts: JobFacts) -> None:
    """Write what the first look at the job told, so that a resumed study starts from the same.

    Raises:
        OutputError: The file cannot be written.
    """
    _write(folder / _FACTS, JobFacts, facts)


def load_facts(folder: Path) -> JobFacts | None:
    """Return the facts that the study started from, or None when it has none yet.

    Raises:
        StudyError: The file cannot be read, or does not say what it must.
    """
    path = folder / _FACTS
    return _read(path, JobFacts) if path.exists() else None


def _write(path: Path, kind: type[Any], value: object) -> None:
    from pydantic import TypeAdapter

    write_whole(
        path,
        TypeAdapter(kind).dump_json(value, indent=1),
        todo="study.resume=true then goes on from the last finished trial.",
    )


def _read(path: Path, kind: type[_T]) -> _T:
    from pydantic import TypeAdapter, ValidationError

    try:
        value: _T = TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StudyError(
            f"{path} is not a record of autotune ({where}: {first['msg']}). Delete its folder to "
            "have it measured again, or start a new study with study.resume=false."
        ) from None
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror or error}.") from error
    return value
