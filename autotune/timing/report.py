"""What a `StepTimer` saw, as numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.errors import TimingError
from autotune.report.numbers import duration, milliseconds, rate, share
from autotune.report.table import table
from autotune.statistics import Estimate
from autotune.timing.spikes import spike_limit

if TYPE_CHECKING:
    from rich.console import RenderableType

OTHER = "other"
"""The time of a step outside all phases."""

_SHOWN_STEPS = 5


@dataclass(frozen=True)
class PhaseTimes:
    """A phase over the steps in which it ran.

    Attributes:
        path: Names from the outermost phase, joined with "/"; "other" for the time outside all.
        steps: Steps in which it ran.
        median_s: Median over these steps, seconds; on a device, on the device's clock.
        mean_s: Mean over these steps, seconds.
        p95_s: 95th percentile over these steps, seconds.
        share: Its part of the time of all steps, from 0 to 1.
        host_s: Mean on the host's clock, seconds; None on a CPU, where the two are the same.
    """

    path: str
    steps: int
    median_s: float
    mean_s: float
    p95_s: float
    share: float
    host_s: float | None


@dataclass(frozen=True)
class SpikeGroup:
    """Steps far above the others.

    Attributes:
        steps: Their numbers; the first step of the run is 1.
        excess_s: Median of how far they lie above the median step, seconds.
        phase: Outermost phase in which most of the excess lies.
        every: Their period in steps; None if they show none.
        due: Steps at which the period would have had a spike; None without a period.
        at_restart: They are the steps in which a loader was started anew: the first of an epoch.
    """

    steps: tuple[int, ...]
    excess_s: float
    phase: str
    every: int | None
    due: int | None
    at_restart: bool


@dataclass(frozen=True)
class StepTimes:
    """Whole steps after warm-up.

    Attributes:
        mean_s: Mean, with its 95 % interval from block means, seconds.
        median_s: Median, seconds.
        p95_s: 95th percentile, seconds.
    """

    mean_s: Estimate
    median_s: float
    p95_s: float


@dataclass(frozen=True, eq=False)
class StepReport:
    """What a `StepTimer` saw of its complete steps. Printable, as plain text and with rich.

    Attributes:
        device: Kind of the device whose clock was used: cpu, cuda, xpu.
        steps: Complete steps of the whole run.
        first: Number of the first step that the figures are about, after warm-up.
        step: Times of whole steps; None if the timer was disabled.
        samples_per_s: Samples per second; None if the samples of a step are not known.
        phases: The phases, each before those inside it, and last the time outside all phases.
        warm_up_s: Seconds of the first steps, which the figures leave out: the very first, and
            those after it that are as far above the others as spikes are.
        spikes: Steps far above the others: those with a period first.
        host_wait_s: Mean seconds a step that the host waited for batches; None without `iterate`.
        stall_s: Mean seconds a step that the device stood still for it; None without `iterate`,
            and on a CPU, where it is the host's.
        step_s: Seconds of each step that the figures are about.
        parts_s: Seconds of each outermost phase in each of these steps, "other" last; they add up
            to `step_s`.
    """

    device: str
    steps: int
    first: int
    step: StepTimes | None
    samples_per_s: Estimate | None
    phases: tuple[PhaseTimes, ...]
    warm_up_s: tuple[float, ...]
    spikes: tuple[SpikeGroup, ...]
    host_wait_s: float | None
    stall_s: float | None
    step_s: NDArray[np.float64] = field(repr=False)
    parts_s: Mapping[str, NDArray[np.float64]] = field(repr=False)

    def __str__(self) -> str:
        if self.step is None:
            return self.summary
        head, rows = self._cells()
        numbers = range(1, len(head))
        return "\n".join(
            [self.summary, "", table(head, rows, right=numbers), "", *self._remarks()]
        ).rstrip()

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        headline = Text(self.summary)
        if self.step is None:
            return headline
        head, rows = self._cells()
        grid = Table(*head[:1])
        for name in head[1:]:
            grid.add_column(name, justify="right")
        for row in rows:
            grid.add_row(*map(Text, row))
        return Group(headline, grid, *map(Text, self._remarks()))

    def plot(self, path: str | PathLike[str]) -> None:
        """Write a picture of the steps: their phases stacked, spikes marked.

        Args:
            path: Target; its ending names the format (png, svg, pdf).

        Raises:
            TimingError: There are no steps: the timer was disabled.
            OutputError: The picture cannot be written.
        """
        from autotune.timing.pictures import plot_steps

        if self.step is None:
            raise TimingError("nothing to plot: the StepTimer was disabled (enabled=False)")
        plot_steps(self, path)

    @property
    def summary(self) -> str:
        """The whole steps in one line."""
        if self.step is None:
            return "StepTimer: disabled, nothing was measured"
        words = [f"mean {rate(_in_ms(self.step.mean_s), ' ms')}"]
        words += [f"median {milliseconds(1e3 * self.step.median_s)} ms"]
        words += [f"p95 {milliseconds(1e3 * self.step.p95_s)} ms"]
        if self.samples_per_s is not None:
            words.append(f"{rate(self.samples_per_s, ' samples/s')}")
        last = self.steps
        return f"Steps {self.first:,} to {last:,} on {self.device}: {', '.join(words)}"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = ["phase", "median, ms", "mean, ms", "p95, ms", "share", "steps"]
        if self.device != "cpu":
            head.append("host, ms")
        rows = []
        for phase in self.phases:
            values = [phase.median_s, phase.mean_s, phase.p95_s]
            row = [phase.path, *(milliseconds(1e3 * value) for value in values)]
            row += [share(phase.share), f"{phase.steps:,}"]
            if self.device != "cpu":
                row.append(milliseconds(None if phase.host_s is None else 1e3 * phase.host_s))
            rows.append(row)
        return head, rows

    def _remarks(self) -> list[str]:
        return [
            *self._warm_up_remark(),
            *self._wait_remark(),
            *map(self._spike_remark, self.spikes),
        ]

    def _warm_up_remark(self) -> list[str]:
        if not self.warm_up_s or self.step is None:
            return []
        count = len(self.warm_up_s)
        which = "first step" if count == 1 else f"first {count} steps"
        total = sum(self.warm_up_s)
        slow = self.warm_up_s[0] > spike_limit(self.step_s)
        cause = ": compile, cuDNN search or other first-time work?" if slow else ""
        return [f"{which}, left out: {duration(total)}{cause}"]

    def _wait_remark(self) -> list[str]:
        if self.stall_s is None or self.host_wait_s is None or self.step is None:
            return []
        host, stall = (milliseconds(1e3 * each) for each in (self.host_wait_s, self.stall_s))
        part = share(self.stall_s / self.step.mean_s.value)
        return [
            f"waiting for data: host {host} ms a step, during which the device stood still "
            f"{stall} ms ({part} of the step)"
        ]

    def _spike_remark(self, group: SpikeGroup) -> str:
        more = f"+{milliseconds(1e3 * group.excess_s)} ms, in {group.phase}"
        count = len(group.steps)
        shown = ", ".join(f"{step:,}" for step in group.steps[:_SHOWN_STEPS])
        shown += ", ..." if count > _SHOWN_STEPS else ""
        if group.at_restart:
            return (
                f"first step of an epoch (step {shown}): {more}: the loader starting anew? "
                "(persistent_workers=True keeps its workers)"
            )
        if group.every is None:
            noun = "spike" if count == 1 else f"{count} spikes"
            return f"{noun} without a period (step {shown}): {more}"
        cause = ": a checkpoint, an evaluation or logging?" if group.phase == OTHER else ""
        return (
            f"every {group.every:,} steps (step {shown}; {count} of {group.due} times): "
            f"{more}{cause}"
        )


def _in_ms(seconds: Estimate) -> Estimate:
    low, high = (None if end is None else 1e3 * end for end in (seconds.low, seconds.high))
    return Estimate(1e3 * seconds.value, low, high, seconds.level)
