"""The last thing on the screen: plain text that can be pasted into a chat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.report import bottleneck, compiling, headline, numerics, phase_table
from autotune.report.table import table
from autotune.result import StudyResult
from autotune.settings import KNOBS, yaml_word
from autotune.statistics import Verdict


@dataclass(frozen=True)
class Ending:
    """The outcome of a study as text.

    Attributes:
        headline: One or two sentences.
        tables: Phases before and after, and the settings that change.
        sentences: What held the job back, failed trials.
        files: Where everything is, a line each.
    """

    headline: str
    tables: str
    sentences: tuple[str, ...]
    files: str


def ending(
    result: StudyResult, *, tuned: Path, summary: Path, view: str | None, address: str | None
) -> Ending:
    """Return the outcome of a study as text.

    Args:
        result: The study.
        tuned: Where the settings are.
        summary: Where the whole story is.
        view: The command that shows the runs; None where none is needed.
        address: Where the runs are to be seen then; None where they are not.
    """
    return Ending(
        headline=headline(result),
        tables="\n\n".join(_tables(result)),
        sentences=tuple(_sentences(result)),
        files=_files(tuned, summary, view, address),
    )


def _tables(result: StudyResult) -> Iterator[str]:
    yield phase_table(result)
    if result.confirmation is not None:
        yield "samples/s are the confirmation's; all else is of one trial each, from the search"
    yield _changes(result)


def _changes(result: StudyResult) -> str:
    before, after = result.yours.as_dict(), result.recommended.as_dict()
    changed = [knob for knob in KNOBS if before[knob] != after[knob]]
    if not changed:
        return "Nothing to change: your settings stay as they are."
    rows = [[knob, yaml_word(before[knob]), yaml_word(after[knob])] for knob in changed]
    return table(["setting", "yours", "tuned"], rows)


def _sentences(result: StudyResult) -> Iterator[str]:
    if result.baseline.measurement is not None:
        yield f"your settings: {bottleneck(result.baseline.measurement)}"
    if result.verdict is Verdict.FASTER and result.best.measurement is not None:
        yield f"tuned: {bottleneck(result.best.measurement)}"
    yield from numerics(result)
    yield from compiling(result)
    if result.failures:
        kinds = ", ".join(f"{times} {kind}" for kind, times in result.failures.items())
        kind, first = next(iter(result.first_failures.items()))
        yield f"failed trials: {kinds} (why: in the summary)"
        if first.failure is not None:
            yield f"the first {kind}, in trial {first.number:03d}: {first.failure.message}"


def _files(tuned: Path, summary: Path, view: str | None, address: str | None) -> str:
    lines = [
        f"settings: {tuned}",
        f"          in your code: autotune.load_tuned({tuned.name!r})",
        f"summary:  {summary}",
    ]
    if view is not None:
        lines.append(f"runs:     {view}")
    if address is not None:
        lines.append(f"{'          then: ' if view is not None else 'runs:     '}{address}")
    return "\n".join(lines)
