"""Records as they travel and are kept: one line of JSON each."""

from __future__ import annotations

from autotune.measurement.facts import JobFacts
from autotune.measurement.failure import TrialFailure
from autotune.measurement.measurement import Measurement

Outcome = Measurement | TrialFailure
"""What a trial ends in."""

Record = Measurement | TrialFailure | JobFacts
"""What a trial's process may send back."""


def to_json(record: Record) -> str:
    """Return a record as one line of JSON."""
    from pydantic import TypeAdapter

    return TypeAdapter(type(record)).dump_json(record).decode()


def from_json(text: str | bytes) -> Record:
    """Return the record that `to_json` wrote, checked against its types.

    Raises:
        ValueError: The text is not such a record, or has another schema version.
    """
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Record] = TypeAdapter(Record)
    return adapter.validate_json(text)
