"""The last thing on the screen: plain text that can be pasted into a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.report import PhaseRow, bottleneck, headline, numbers, phase_rows
from autotune.report.table import table
from autotune.result import StudyResult
from autotune.settings import KNOBS
from autotune.statistics import Verdict


@dataclass(frozen=True)
class Ending:
    """The outcome of a study as text.

    Attributes:
        headline: One or two sentences.
        tables: Phases before and after, and the settings that change.
        sentences: What held the job back, failed trials, notes.
        files: Where everything is, a line each.
    """

    headline: str
    tables: str
    sentences: tuple[str, ...]
    files: str


def ending(result: StudyResult, *, tuned: Path, summary: Path, view: str | None) -> Ending:
    """Return the outcome of a study as text.

    Args:
        result: The study.
        tuned: Where the settings are.
        summary: Where the whole story is.
        view: The command that shows the runs; None where nothing was tracked.
    """
    return Ending(
        headline=headline(result),
        tables=f"{_phases(result)}\n\n{_changes(result)}",
        sentences=tuple(_sentences(result)),
        files=_files(tuned, summary, view),
    )


def _phases(result: StudyResult) -> str:
    rows = phase_rows(result)
    lines: tuple[tuple[str, Callable[[PhaseRow], str]], ...] = (
        ("samples/s", lambda row: numbers.rate(row.throughput).partition(" ")[0]),
        ("95 % interval", lambda row: _interval(numbers.rate(row.throughput))),
        ("batch size", lambda row: numbers.count(row.settings.batch_size)),
        ("step, ms", lambda row: numbers.milliseconds(row.step_ms)),
        ("  data, ms", lambda row: numbers.milliseconds(row.data_ms)),
        ("  forward, ms", lambda row: numbers.milliseconds(row.forward_ms)),
        ("  backward, ms", lambda row: numbers.milliseconds(row.backward_ms)),
        ("  optimizer, ms", lambda row: numbers.milliseconds(row.optimizer_ms)),
        ("waited for data", lambda row: numbers.share(row.stall_share)),
        ("device memory", lambda row: numbers.gibibytes(row.device_memory_bytes)),
    )
    return table(
        ["", *(row.label for row in rows)],
        [[name, *(show(row) for row in rows)] for name, show in lines],
        right=range(1, len(rows) + 1),
    )


def _interval(rate: str) -> str:
    return rate.partition(" ")[2].strip("()") or numbers.MISSING


def _changes(result: StudyResult) -> str:
    before, after = result.baseline.settings.as_dict(), result.recommended.as_dict()
    changed = [knob for knob in KNOBS if before[knob] != after[knob]]
    if not changed:
        return "Nothing to change: your settings stay as they are."
    rows = [[knob, _word(before[knob]), _word(after[knob])] for knob in changed]
    return table(["setting", "yours", "tuned"], rows)


def _sentences(result: StudyResult) -> Iterator[str]:
    if result.baseline.measurement is not None:
        yield f"your settings: {bottleneck(result.baseline.measurement)}"
    if result.verdict is Verdict.FASTER and result.best.measurement is not None:
        yield f"tuned: {bottleneck(result.best.measurement)}"
    if result.failures:
        kinds = ", ".join(f"{times} {kind}" for kind, times in result.failures.items())
        yield f"failed trials: {kinds}"
    for text in result.notes:
        yield f"note: {text}"


def _files(tuned: Path, summary: Path, view: str | None) -> str:
    lines = [
        f'settings: {tuned}  (autotune.load_tuned("{tuned.name}"))',
        f"summary:  {summary}",
    ]
    if view is not None:
        lines.append(f"runs:     {view}")
    return "\n".join(lines)


def _word(value: object) -> str:
    if value is None:
        return numbers.MISSING
    return str(value).lower() if isinstance(value, bool) else str(value)
