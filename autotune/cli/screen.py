"""What the user watches: two live lines, and a permanent one a trial. The door to rich."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotune.cli.ending import Ending
from autotune.objective import Objective
from autotune.report import numbers
from autotune.report.table import shorten
from autotune.result import Arm, Role, TrialRecord, TrialState
from autotune.settings import Settings
from autotune.statistics import Estimate

if TYPE_CHECKING:
    from autotune.tuner import StudyPlan

_HEAD = ("#", "role", "samples/s (95 % interval)", "ratio", "settings that differ")
_WIDTHS = (3, 8, 27, 7)
_ROLES = {Role.CONFIRMATION: "confirm"}
_STYLES = {TrialState.COMPLETE: "", TrialState.PRUNED: "dim", TrialState.FAILED: "red"}
_MESSAGE_LENGTH = 500
"""Characters of a failure's message on a line that no terminal cuts."""

_PLAIN_STEPS = 4
"""Lines in which a preparation is told where nothing can be redrawn."""


class Screen:
    """Shows a study on a terminal, or as plain lines anywhere else; an `Observer`.

    Args:
        console: Where to write; None for standard output.
        clock: Seconds that pass; for the elapsed time.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(highlight=False)
        self._clock = clock
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._doing = "looking at the job"
        self._detail = ""
        self._label = ""
        self._share: tuple[float, float] | None = None
        self._started_s = clock()
        self._budget_s: float | None = None
        self._running: Settings | None = None
        self._baseline: Settings | None = None
        self._baseline_rate: float | None = None
        self._best: TrialRecord | None = None
        self._objective = Objective()
        self._live = Live(
            console=self._console,
            get_renderable=self.__rich__,
            refresh_per_second=2,  # the screen must not take processor time from the trials
            transient=True,
        )

    def __enter__(self) -> Screen:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def preparing(self, what: str, done: int, total: int) -> None:
        """Show how far something is that comes before the study."""
        self._doing, self._detail, self._share = what, f"{done:,} of {total:,}", (done, total)
        step = max(1, total // _PLAIN_STEPS)
        if not self._is_live and (done % step == 0 or done == total):
            self._print(f"{what}: {done:,} of {total:,}")

    def prepared(self) -> None:
        """Show that the preparation is over and the study begins."""
        self._doing, self._detail, self._share = "looking at the job", "", None
        self._started_s = self._clock()

    def study_started(self, plan: StudyPlan) -> None:
        """Print what is about to be done."""
        self._budget_s, self._baseline = plan.budget_s, plan.baseline
        self._objective = plan.objective
        device, stamp = plan.facts.device, plan.environment
        torch = stamp.packages.get("torch", numbers.MISSING)
        self._prose(
            f"study {plan.study}: {numbers.count(plan.space_size)} settings of "
            f"{', '.join(plan.knobs) or 'nothing'}; at most {plan.budget_s / 60:g} min"
        )
        self._print(f"device: {device.name}, {stamp.usable_cpus} usable CPUs, torch {torch}")
        self._prose(f"baseline: {plan.baseline.label()} (what is not named is off or default)")
        for text in plan.notes:
            self.note(text)
        self._print("")
        self._row(self._with_score(_HEAD, plan.objective.unit), style="bold")

    def trial_started(self, number: int, role: Role, settings: Settings, label: str) -> None:
        """Show the trial that runs now."""
        self._label = label
        self._doing = f"trial {number} {label}"
        self._running = settings
        self.trial_progress("start")

    def trial_progress(self, stage: str) -> None:
        """Show the stage that the trial has reached."""
        differs = self._running.label(self._baseline) if self._running is not None else ""
        self._detail = f"{stage}, {differs}" if differs else stage

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """Print the trial's line."""
        if record.role is Role.BASELINE and record.score is not None:
            self._baseline, self._baseline_rate = record.settings, record.score
        is_new_best = best is not None and best.number == record.number
        self._best = best
        cells: tuple[str, ...] = (
            str(record.number),
            _ROLES.get(record.role, str(record.role)),
            _rate(record),
            # Each round of the confirmation is compared within itself, not with the search.
            "" if record.role is Role.CONFIRMATION else self._ratio(record.score),
            self._about(record),
        )
        style = "green" if is_new_best else _STYLES[record.state]
        cells = self._with_score(cells, numbers.plain(record.score))
        self._row(cells, style=style, reason=_reason(record))
        self._doing, self._detail = "between trials", ""

    def confirmation_started(self, arms: tuple[Arm, ...], rounds: int) -> None:
        """Print that baseline and best are measured again."""
        names = ", ".join(arms)
        self._prose(f"confirming, {rounds} rounds or more in fresh processes: {names}")

    def note(self, text: str) -> None:
        """Print something that the user should know."""
        self._prose(f"note: {text}")

    def show(self, ending: Ending) -> None:
        """Print the outcome, headline first."""
        self._live.stop()
        self._print("")
        self._prose(ending.headline, style="bold")
        self._print(f"\n{ending.tables}\n")
        for sentence in ending.sentences:
            self._prose(sentence)
        self._print(f"\n{ending.files}")

    def _about(self, record: TrialRecord) -> str:
        return "; ".join([self._what(record), *_disturbed(record)])

    def _what(self, record: TrialRecord) -> str:
        if record.role is Role.CONFIRMATION:
            return self._label
        if record.settings == self._baseline:
            return "(baseline)"
        about = record.settings.label(self._baseline)
        compilation = record.measurement.compilation if record.measurement is not None else None
        if compilation is not None and compilation.fell_back is not None:
            about += "; compile fell back"
        outraced = record.state is TrialState.PRUNED and _reason(record) is None
        return f"{about}; stopped: surely slower" if outraced else about

    def _ratio(self, score: float | None) -> str:
        if score is None or self._baseline_rate is None:
            return numbers.MISSING
        return numbers.ratio(Estimate(score / self._baseline_rate))

    def _with_score(self, cells: tuple[str, ...], score: str) -> tuple[str, ...]:
        """Return a row's cells with the score before the ratio, where it is not the throughput."""
        return cells if self._objective.is_plain else (*cells[:3], score, *cells[3:])

    def _print(self, text: str, style: str = "") -> None:
        # Not wrapped by us: file names, commands and log lines must stay whole for copying.
        self._console.print(Text(text, style), soft_wrap=True)

    def _prose(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=not self._is_live)

    def _row(self, cells: tuple[str, ...], style: str, reason: str | None = None) -> None:
        *short, about = cells
        room_for_score = () if self._objective.is_plain else (len(self._objective.unit),)
        widths = (*_WIDTHS[:3], *room_for_score, *_WIDTHS[3:])
        if not self._is_live:
            padded = [cell.ljust(width) for cell, width in zip(short, widths, strict=True)]
            end = f"; {shorten(reason, _MESSAGE_LENGTH)}" if reason is not None else ""
            self._print("  ".join([*padded, f"{about}{end}"]))
            return
        row = Table.grid(padding=(0, 1))
        for width in widths:
            row.add_column(min_width=width)
        row.add_column(ratio=1, overflow="fold")
        row.add_row(*(Text(cell, style) for cell in cells))
        self._console.print(row)
        if reason is not None:  # on a line of its own: the whole message is in the summary
            indent = " " * (_WIDTHS[0] + 1)
            room = self._console.width - len(indent)
            self._console.print(Text(f"{indent}{shorten(reason, room)}", style))

    def __rich__(self) -> Table:
        """Return the live lines: what runs; below it the budget and the best so far."""
        score = self._best.score if self._best is not None else None
        unit = "/s" if self._objective.is_plain else f" {self._objective.unit}"
        best = f"best {numbers.rate(Estimate(score), unit)} {self._ratio(score)}" if score else ""
        elapsed_s = self._clock() - self._started_s
        done, total = self._share or (elapsed_s, self._budget_s or 0.0)
        bar = ProgressBar(total=total, completed=min(done, total), width=20) if total else Text("")
        budget = f"/{_minutes(self._budget_s)}" if self._budget_s is not None else ""
        progress = Table.grid(padding=(0, 2))
        progress.add_row(bar, Text(f"{_minutes(elapsed_s)}{budget}"), Text(best))
        lines = Table.grid()
        # Room for the ^C that a terminal echoes: it must not wrap a line we are about to erase.
        lines.width = self._console.width - 3
        lines.add_column(no_wrap=True, overflow="crop", ratio=1)
        doing = f"{self._doing}: {self._detail}" if self._detail else self._doing
        lines.add_row(Text(doing))
        lines.add_row(progress)
        return lines


def _rate(record: TrialRecord) -> str:
    throughput = None if record.measurement is None else record.measurement.window.throughput
    shown = numbers.rate(throughput)
    too_noisy = throughput is not None and throughput.low is None
    return f"{shown} (no interval)" if too_noisy else shown


def _reason(record: TrialRecord) -> str | None:
    """Return why a trial must not or cannot be used; None for any other."""
    if record.failure is not None:
        return f"{record.state}: {record.failure.failure}: {record.failure.message}"
    return f"not to be used: {record.infeasible}" if record.infeasible is not None else None


def _disturbed(record: TrialRecord) -> list[str]:
    measured = record.measurement
    return [f"disturbed: {text}" for text in measured.window.disturbances] if measured else []


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
