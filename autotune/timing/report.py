"""What a `StepTimer` saw, as numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from autotune.errors import TimingError
from autotune.report.numbers import duration, milliseconds, rate, share
from autotune.report.table import table
from autotune.statistics import Estimate, block_means, mean_estimate, rate_estimate
from autotune.timing.history import StepHistory
from autotune.timing.spikes import Spikes, find_spikes, spike_limit

if TYPE_CHECKING:
    from rich.console import RenderableType

OTHER = "other"
"""The time of a step outside all phases."""

BLOCKS = 20
"""Blocks whose means give the interval of the mean step (10 to 30 are enough for a good interval,
and more only make them dependent: Schmeiser 1982, "Batch size effects in the analysis of simulation
output")."""

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


def step_report(
    history: StepHistory | None,
    paths: tuple[str, ...],
    *,
    device: torch.device,
    workers: int,
    on_device: bool,
) -> StepReport:
    """Return the report on the steps that are kept.

    Args:
        history: The steps, at least one; None for a disabled timer.
        paths: Phases in the history's order.
        device: Where the steps ran.
        workers: DataLoader workers; a block spans a whole turn of them.
        on_device: The timer's clock was not the host's.
    """
    if history is None:
        nothing = np.empty(0)
        return StepReport(device.type, 0, 0, None, None, (), (), (), None, None, nothing, {})
    kept_s = history.step_s
    warm = _warm_up_steps(history.first_s, kept_s)
    skip = max(0, warm - history.dropped)
    step_s = kept_s[skip:]
    first = history.dropped + skip + 1
    phase_s = {path: history.phase_s(i)[skip:] for i, path in enumerate(paths)}
    host_s = {path: history.host_s(i)[skip:] for i, path in enumerate(paths)}
    parts_s = {path: np.nan_to_num(seconds) for path, seconds in phase_s.items() if "/" not in path}
    parts_s[OTHER] = np.maximum(0.0, step_s - sum(parts_s.values()))
    total_s = float(step_s.sum())
    block = max(1, workers, len(step_s) // BLOCKS)
    blocks = block_means(step_s, block)  # type: ignore[arg-type]
    mean = mean_estimate(blocks) if len(blocks) > 1 else Estimate(float(step_s.mean()))
    samples = history.samples[skip:]
    known = not np.isnan(samples).any()
    waits = "data" in phase_s
    return StepReport(
        device=device.type,
        steps=history.dropped + len(kept_s),
        first=first,
        step=StepTimes(mean, float(np.median(step_s)), float(np.percentile(step_s, 95))),
        samples_per_s=rate_estimate(step_s, float(samples.mean()), block)  # type: ignore[arg-type]
        if known
        else None,
        phases=tuple(
            times
            for path in (*_nested_order(paths), OTHER)
            if (
                times := _phase_times(
                    path,
                    phase_s.get(path, parts_s[OTHER]),
                    host_s.get(path) if on_device else None,
                    total_s,
                )
            )
            is not None
        ),
        warm_up_s=tuple(history.first_s[:warm]),
        spikes=_spikes(step_s, parts_s, history.restarted[skip:], first),
        host_wait_s=float(np.nansum(host_s["data"])) / len(step_s) if waits else None,
        stall_s=float(np.nansum(phase_s["data"])) / len(step_s) if waits and on_device else None,
        step_s=step_s,
        parts_s=parts_s,
    )


def _warm_up_steps(first_s: list[float], kept_s: NDArray[np.float64]) -> int:
    """Return how many first steps are warm-up: the first, and what is a spike right after it."""
    if len(kept_s) < 2:
        return 0
    limit = spike_limit(kept_s[1:])
    warm = 1
    while warm < min(len(first_s), len(kept_s) // 2) and first_s[warm] > limit:
        warm += 1
    return warm


def _nested_order(paths: tuple[str, ...]) -> list[str]:
    """Return the paths, each before those inside it, as they were first seen."""
    seen = {path: number for number, path in enumerate(paths)}

    def ancestry(path: str) -> list[int]:
        names = path.split("/")
        return [seen["/".join(names[: depth + 1])] for depth in range(len(names))]

    return sorted(paths, key=ancestry)


def _phase_times(
    path: str,
    seconds: NDArray[np.float64],
    host_s: NDArray[np.float64] | None,
    total_s: float,
) -> PhaseTimes | None:
    """Return the times of a phase, or None if it ran in none of the steps."""
    ran = seconds[~np.isnan(seconds)]
    if not len(ran):
        return None
    return PhaseTimes(
        path=path,
        steps=len(ran),
        median_s=float(np.median(ran)),
        mean_s=float(ran.mean()),
        p95_s=float(np.percentile(ran, 95)),
        share=float(ran.sum()) / total_s if total_s else math.nan,
        host_s=None if host_s is None else float(np.nanmean(host_s)),
    )


def _spikes(
    step_s: NDArray[np.float64],
    parts_s: Mapping[str, NDArray[np.float64]],
    restarted: NDArray[np.bool_],
    first: int,
) -> tuple[SpikeGroup, ...]:
    restarts = np.flatnonzero(restarted & (step_s > spike_limit(step_s)))
    others_s = step_s
    groups: list[Spikes] = []
    if 2 * len(restarts) > restarted.sum():
        usual = float(np.median(step_s))
        groups.append(Spikes(restarts, float(np.median(step_s[restarts])) - usual))
        others_s = step_s.copy()
        others_s[restarts] = usual
    found = find_spikes(others_s)
    return tuple(
        SpikeGroup(
            steps=tuple(int(position) + first for position in group.at),
            excess_s=group.excess_s,
            phase=_phase_of(group, parts_s),
            every=group.every,
            due=group.due,
            at_restart=number < len(groups),
        )
        for number, group in enumerate([*groups, *found])
    )


def _phase_of(group: Spikes, parts_s: Mapping[str, NDArray[np.float64]]) -> str:
    """Return the outermost phase that holds most of what the spikes are above the median."""
    excess_s = {
        path: float((seconds[group.at] - np.median(seconds)).sum())
        for path, seconds in parts_s.items()
    }
    return max(excess_s, key=lambda path: excess_s[path])
