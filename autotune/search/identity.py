"""What must be the same for the trials of a resumed study to be comparable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.errors import StudyError


@dataclass(frozen=True)
class StudyIdentity:
    """What a study measures, and on what.

    Attributes:
        space: The search space, as its text.
        workload: What is trained, as JSON.
        baseline: The user's own settings, as JSON.
        device: Name of the device.
        versions: Version by package of what decides the speed, as JSON.
        objective: What is maximised, as JSON.
    """

    space: str
    workload: str
    baseline: str
    device: str
    versions: str
    objective: str = "{}"


def check_identity(folder: Path, known: Mapping[str, Any], identity: StudyIdentity) -> None:
    """Refuse to continue a study whose trials were measured with something else.

    Args:
        folder: Folder of the study, for the message.
        known: Fields of the study's own identity by name, as far as they were kept.
        identity: What this run would measure.

    Raises:
        StudyError: A field differs; the message says which values.
    """
    now = asdict(identity)
    changes = [
        f"{name}: {_difference(known[name], text)}"
        for name, text in now.items()
        if known.get(name, text) != text
    ]
    if changes:
        raise StudyError(
            f"the study in {folder} cannot be continued: its trials were measured with something "
            "else.\n  "
            + "\n  ".join(changes)
            + "\nUse what it was started with, or start a new study with study.resume=false."
        )


def _difference(before: str, now: str) -> str:
    """Return what differs between two texts, by key where both are JSON objects."""
    try:
        old, new = _flat(json.loads(before)), _flat(json.loads(now))
    except ValueError:
        return f"was {before}, now {now}"
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return "; ".join(f"{key} was {old.get(key)}, now {new.get(key)}" for key in keys)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat
