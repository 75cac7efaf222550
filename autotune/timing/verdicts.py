"""What `compare` found, as numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING

from autotune.errors import TimingError
from autotune.report.numbers import MISSING, duration, rate, ratio
from autotune.report.table import table
from autotune.statistics import Estimate, Verdict
from autotune.timing.candidate import Agreement

if TYPE_CHECKING:
    from rich.console import RenderableType

LAUNCH_BOUND = 0.9
"""A call is launch-bound when queueing it takes the host at least this part of its time, while the
device is busy for less than that part of it."""

SLOW_FIRST_CALL_S = 1.0
"""A first call is told of when it takes this long, seconds."""


@dataclass(frozen=True, kw_only=True)
class CandidateTimes:
    """A candidate of a comparison.

    Attributes:
        name: As given.
        time_s: Seconds per call, with its 95 % interval over the blocks; None if it failed.
        speedup: How many times faster than the reference, with its 95 % interval; None for the
            reference, and if it failed.
        verdict: Against the reference; None as above.
        kernels: Kernels that a call runs on the device; None on a CPU or if not known.
        operators: Operators (`aten::...`) that a call asks for; code that a compiler generated is
            not among them. None if not known.
        busy_s: Seconds of a call in which the device runs kernels or copies; None on a CPU.
        queue_s: Seconds that the host takes to queue a call; None on a CPU.
        memory_bytes: Device memory that a call takes at its peak above what is there before; None
            on a CPU.
        outputs: Whether it returns what the first candidate does; None for that one.
        first_call_s: Seconds of its first call: compiling, choosing algorithms.
        calls_per_block: Calls that were timed as one.
        block_s: Seconds per call in each block, in the order of the rounds.
        failure: Why there are no figures; None if there are.
    """

    name: str
    time_s: Estimate | None = None
    speedup: Estimate | None = None
    verdict: Verdict | None = None
    kernels: float | None = None
    operators: float | None = None
    busy_s: float | None = None
    queue_s: float | None = None
    memory_bytes: int | None = None
    outputs: Agreement | None = None
    first_call_s: float | None = None
    calls_per_block: int | None = None
    block_s: tuple[float, ...] = field(default=(), repr=False)
    failure: str | None = None

    @property
    def launch_bound(self) -> bool | None:
        """Whether the device waits for the host to launch; None where that is not known."""
        if self.time_s is None or self.queue_s is None or self.busy_s is None:
            return None
        limit = LAUNCH_BOUND * self.time_s.value
        return self.queue_s >= limit and self.busy_s < limit


@dataclass(frozen=True)
class CompareResult:
    """What `compare` found. Printable, as plain text and with rich.

    Attributes:
        device: Kind of the device: cpu, cuda, xpu.
        backward: Calls were timed with their backward pass.
        rounds: Rounds, each with one block of every candidate.
        elapsed_s: Seconds of all rounds.
        unmet: Which target was missed when the timing stopped, in words; None if none was.
        reference: The candidate that others are compared with: the first that ran.
        candidates: A row for each, in the order given.
    """

    device: str
    backward: bool
    rounds: int
    elapsed_s: float
    unmet: str | None
    reference: str | None
    candidates: tuple[CandidateTimes, ...]

    def __getitem__(self, name: str) -> CandidateTimes:
        """Return the candidate with a name.

        Raises:
            KeyError: There is none.
        """
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(name)

    def __str__(self) -> str:
        head, rows = self._cells()
        lines = [self.summary, "", table(head, rows, right=range(1, len(head) - 1))]
        remarks = self._remarks()
        return "\n".join([*lines, "", *remarks] if remarks else lines)

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        head, rows = self._cells()
        grid = Table(*head[:1])
        for name in head[1:]:
            grid.add_column(name, justify="left" if name == "outputs" else "right")
        for row in rows:
            grid.add_row(*map(Text, row))
        return Group(Text(self.summary), grid, *map(Text, self._remarks()))

    @property
    def summary(self) -> str:
        """What was timed, in one line."""
        what = "forward and backward" if self.backward else "calls"
        return (
            f"{what} on {self.device}, {self.rounds} rounds in random order, "
            f"{duration(self.elapsed_s)}; compared with {self.reference or 'nothing: all failed'}"
        )

    def plot(self, path: str | PathLike[str]) -> None:
        """Write a picture of the time per call in each block.

        Args:
            path: Target; its ending names the format (png, svg, pdf).

        Raises:
            TimingError: All candidates failed.
            OutputError: The picture cannot be written.
        """
        from autotune.timing.pictures import plot_blocks

        if self.reference is None:
            raise TimingError("nothing to plot: all candidates failed")
        plot_blocks(
            [candidate.name for candidate in self.candidates],
            [candidate.block_s for candidate in self.candidates],
            self.summary,
            path,
        )

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        on_device = self.device != "cpu"
        head = ["candidate", "time per call", "speed-up", "verdict"]
        head += ["kernels", "memory"] if on_device else ["aten ops"]
        head.append("outputs")
        rows = []
        for one in self.candidates:
            verdict = "failed" if one.failure else (one.verdict or MISSING)
            row = [one.name, _time(one.time_s), ratio(one.speedup), str(verdict)]
            row += (
                [_count(one.kernels), _bytes(one.memory_bytes)]
                if on_device
                else [_count(one.operators)]
            )
            row.append(
                MISSING if one.outputs is None else "agree" if one.outputs.close else "differ"
            )
            rows.append(row)
        return head, rows

    def _remarks(self) -> list[str]:
        remarks = [self.unmet] if self.unmet else []
        for one in self.candidates:
            if one.failure is not None:
                remarks.append(f"{one.name}: {one.failure}")
            if one.outputs is not None and not one.outputs.close:
                remarks.append(f"{one.name}: {one.outputs.note}")
            if one.launch_bound and one.queue_s is not None and one.busy_s is not None:
                remarks.append(
                    f"{one.name}: launch-bound: the host takes {_time(Estimate(one.queue_s))} to "
                    f"queue a call, the device {_time(Estimate(one.busy_s))} to run it"
                )
            if one.first_call_s is not None and one.first_call_s >= SLOW_FIRST_CALL_S:
                remarks.append(f"{one.name}: its first call took {duration(one.first_call_s)}")
        return remarks


def _time(seconds: Estimate | None) -> str:
    if seconds is None:
        return MISSING
    scale, unit = next(
        (scale, unit)
        for scale, unit in ((1.0, " s"), (1e3, " ms"), (1e6, " us"))
        if seconds.value * scale >= 1 or unit == " us"
    )
    low, high = (None if end is None else scale * end for end in (seconds.low, seconds.high))
    return rate(Estimate(scale * seconds.value, low, high, seconds.level), unit)


def _count(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.4g}"


def _bytes(value: int | None) -> str:
    if value is None:
        return MISSING
    return f"{value / 2**20:,.1f} MiB" if value < 2**30 else f"{value / 2**30:,.2f} GiB"
