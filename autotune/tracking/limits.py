"""What a store takes: one rule that every name, number and word goes through."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NAME_LIMIT = 250
PARAM_LIMIT = 250
TAG_LIMIT = 5000
"""Longest names and values, in characters: the least that MLflow 1.x and 2.x servers accept (3.17
itself takes 6000 for parameters and 8000 for tags)."""

_DIGITS = 6
"""Significant digits of a metric: more than any can be trusted to, and few enough to be read."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\- :]")
"""Letters that some store refuses in a name. MLflow takes a '/' in most places, but not in all."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a run holds besides files.

    Attributes:
        params: Settings, as text.
        metrics: Finite numbers, with units in their names.
        tags: Words.
        curves: Metrics with a value for each step from 0 on; None where it is not finite.
    """

    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


def fit(
    *,
    params: Mapping[str, str | None] | None = None,
    metrics: Mapping[str, float | None] | None = None,
    tags: Mapping[str, str | None] | None = None,
    curves: Mapping[str, Sequence[float | None]] | None = None,
) -> Content:
    """Return content that every store takes.

    What is None is left out, and so is a metric that is not finite: SQL stores turn it into a huge
    or a broken number. Numbers are rounded, text is cut to its limit and made valid Unicode, odd
    letters in names become '_'.
    """
    return Content(
        params=_words(params or {}, PARAM_LIMIT),
        metrics={
            fit_name(name): number
            for name, value in (metrics or {}).items()
            if (number := _number(value)) is not None
        },
        tags=_words(tags or {}, TAG_LIMIT),
        curves={
            fit_name(name): tuple(map(_number, values)) for name, values in (curves or {}).items()
        },
    )


def fit_name(name: str) -> str:
    """Return a name of a parameter, metric or tag that every store takes."""
    plain = _NOT_IN_NAMES.sub("_", name)[:NAME_LIMIT]
    # Stores that keep names as files take neither the folder itself nor the one above it.
    return f"_{plain[1:]}" if plain in ("", ".") or plain.startswith("..") else plain


def fit_text(text: str, limit: int) -> str:
    """Return text that every store takes: valid Unicode, no zero characters, not too long."""
    valid = text.encode("utf-8", "replace").decode().replace("\0", "")
    return valid if len(valid) <= limit else valid[: limit - 3] + "..."


def _words(words: Mapping[str, str | None], limit: int) -> dict[str, str]:
    return {
        fit_name(name): fit_text(text, limit) for name, text in words.items() if text is not None
    }


def _number(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")
