"""What the user watches: one live line, and one permanent line a trial. The door to rich."""

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
from autotune.report import numbers
from autotune.result import Arm, Role, TrialRecord, TrialState
from autotune.settings import Settings
from autotune.statistics import Estimate

if TYPE_CHECKING:
    from autotune.tuner import StudyPlan

_HEAD = ("#", "role", "samples/s (95 % interval)", "ratio", "settings that differ")
_WIDTHS = (4, 8, 27, 7)
_ROLES = {Role.CONFIRMATION: "confirm"}
_STYLES = {TrialState.COMPLETE: "", TrialState.PRUNED: "dim", TrialState.FAILED: "red"}
_MESSAGE_LENGTH = 120
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
        device, stamp = plan.facts.device, plan.environment
        torch = stamp.packages.get("torch", numbers.MISSING)
        self._prose(
            f"study {plan.study}: {numbers.count(plan.space_size)} settings of "
            f"{', '.join(plan.knobs) or 'nothing'}; at most {numbers.duration(plan.budget_s)}"
        )
        self._print(f"device: {device.name}, {stamp.usable_cpus} usable CPUs, torch {torch}")
        self._prose(f"baseline: {plan.baseline.describe()}")
        for text in plan.notes:
            self.note(text)
        self._print("")
        self._row(_HEAD, style="bold")

    def trial_started(self, number: int, role: Role, settings: Settings, label: str) -> None:
        """Show the trial that runs now."""
        self._label = label
        self._doing = f"trial {number} {label}"
        self._running = settings
        self.trial_progress("start")

    def trial_progress(self, stage: str) -> None:
        """Show the stage that the trial has reached."""
        differs = self._running.label(self._baseline) if self._running is not None else ""
        self._detail = f"{stage}  {differs}"

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """Print the trial's line."""
        if record.role is Role.BASELINE and record.score is not None:
            self._baseline, self._baseline_rate = record.settings, record.score
        is_new_best = best is not None and best.number == record.number
        self._best = best
        measured = record.measurement
        cells = (
            str(record.number),
            _ROLES.get(record.role, str(record.role)),
            numbers.rate(measured.window.throughput if measured is not None else None),
            # Each round of the confirmation is compared within itself, not with the search.
            "" if record.role is Role.CONFIRMATION else self._ratio(record.score),
            self._about(record),
        )
        self._row(cells, style="green" if is_new_best else _STYLES[record.state])
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
        if record.role is Role.CONFIRMATION:
            about = self._label
        elif record.settings == self._baseline:
            about = "(baseline)"
        else:
            about = record.settings.label(self._baseline)
        return f"{about}{_state(record)}"

    def _ratio(self, score: float | None) -> str:
        if score is None or self._baseline_rate is None:
            return numbers.MISSING
        return numbers.ratio(Estimate(score / self._baseline_rate))

    def _print(self, text: str, style: str = "") -> None:
        # Not wrapped by us: file names, commands and log lines must stay whole for copying.
        self._console.print(Text(text, style), soft_wrap=True)

    def _prose(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=not self._is_live)

    def _row(self, cells: tuple[str, ...], style: str) -> None:
        *short, about = cells
        if not self._is_live:
            padded = [cell.ljust(width) for cell, width in zip(short, _WIDTHS, strict=True)]
            self._print("  ".join([*padded, about]))
            return
        row = Table.grid(padding=(0, 1))
        for width in _WIDTHS:
            row.add_column(min_width=width)
        row.add_column(ratio=1, overflow="fold")
        row.add_row(*(Text(cell, style) for cell in cells))
        self._console.print(row)

    def __rich__(self) -> Table:
        """Return the live line: what runs, the budget, the best so far."""
        line = Table.grid(padding=(0, 1))
        # Room for the ^C that a terminal echoes: it must not wrap the line we are about to erase.
        line.width = self._console.width - 3
        line.add_column(no_wrap=True, overflow="crop", ratio=1)
        for _ in range(3):
            line.add_column(no_wrap=True)
        elapsed_s = self._clock() - self._started_s
        done, total = self._share or (elapsed_s, self._budget_s or 0.0)
        bar = ProgressBar(total=total, completed=min(done, total), width=12) if total else Text("")
        score = self._best.score if self._best is not None else None
        best = f"best {numbers.rate(Estimate(score))} {self._ratio(score)}" if score else ""
        doing = f"{self._doing}: {self._detail}" if self._detail else self._doing
        budget = f"/{_minutes(self._budget_s)}" if self._budget_s is not None else ""
        line.add_row(Text(doing), bar, Text(f"{_minutes(elapsed_s)}{budget}"), Text(best))
        return line


def _state(record: TrialRecord) -> str:
    if record.failure is not None:
        message = " ".join(record.failure.message.split())
        if len(message) > _MESSAGE_LENGTH:
            message = message[: _MESSAGE_LENGTH - 3] + "..."
        return f"; {record.state}: {record.failure.failure}: {message}"
    if record.infeasible is not None:
        return f"; not to be used: {record.infeasible}"
    if record.state is TrialState.PRUNED:
        return "; stopped early, surely slower than the best"
    return ""


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
