"""Pictures of what was timed, drawn with matplotlib without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.errors import OutputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from autotune.timing.report import StepReport

_MOST_COLUMNS = 1500
"""Columns of a stacked plot; more are narrower than what a screen shows."""


def plot_steps(report: StepReport, path: str | PathLike[str]) -> None:
    """Draw the phases of each step, stacked, with spikes marked. Means where steps are many.

    Raises:
        OutputError: The picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots()
    columns = min(len(report.step_s), _MOST_COLUMNS)
    numbers = np.arange(len(report.step_s)) + report.first
    at = _binned(numbers, columns)
    names = [name for name, seconds in report.parts_s.items() if seconds.any()]
    heights = [1e3 * _binned(report.parts_s[name], columns) for name in names]
    axes.stackplot(
        np.append(at - 0.5 * len(numbers) / columns, at[-1] + 0.5 * len(numbers) / columns),
        *(np.append(height, height[-1]) for height in heights),
        labels=names,
        step="post",
    )
    marks = "vosD"
    for number, group in enumerate(report.spikes):
        period = "spikes" if group.every is None else f"every {group.every:,} steps"
        period = "first of an epoch" if group.at_restart else period
        steps = np.array(group.steps)
        axes.plot(
            steps,
            1e3 * report.step_s[steps - report.first],
            marks[number % len(marks)],
            color="black",
            fillstyle="none" if group.every is None else "full",
            markersize=4,
            label=f"{period}, +{1e3 * group.excess_s:,.3g} ms",
        )
    axes.set(xlabel="step", ylabel="ms", ylim=(0, None))
    axes.margins(x=0.01)
    axes.set_title(report.summary, fontsize=9, loc="left")
    figure.legend(loc="outside right upper", fontsize=8)
    _save(figure, path)


def plot_blocks(
    names: Sequence[str], block_s: Sequence[Sequence[float]], title: str, path: str | PathLike[str]
) -> None:
    """Draw the time per call of each candidate in each block, with the median marked.

    Raises:
        OutputError: The picture cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.7 * len(names)), layout="constrained")
    axes = figure.subplots()
    longest = max((max(seconds) for seconds in block_s if seconds), default=0.0)
    scale, unit = (1e3, "ms") if longest >= 1e-3 else (1e6, "us")
    for row, seconds in enumerate(block_s):
        if not seconds:
            continue
        times = scale * np.asarray(seconds)
        spread = np.linspace(-0.25, 0.25, len(times))
        axes.plot(times, row + spread, ".", alpha=0.5, markersize=4)
        axes.plot([float(np.median(times))] * 2, [row - 0.35, row + 0.35], color="black")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set(xlabel=f"time per call, {unit} (one dot a block, the median marked)")
    axes.set_title(title, fontsize=9, loc="left")
    axes.grid(axis="x", alpha=0.3)
    _save(figure, path)


def _binned(values: NDArray[np.float64] | NDArray[np.intp], columns: int) -> NDArray[np.float64]:
    return np.array([part.mean() for part in np.array_split(values, columns)])


def _save(figure: Figure, path: str | PathLike[str]) -> None:
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:  # ValueError: an ending that is no picture format
        raise OutputError(f"the picture {path} cannot be written: {error}") from error
