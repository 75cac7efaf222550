"""The timed window: run steps between two synchronisations until the rate is known well enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.measure.machine import MachineWatch
from autotune.measure.timers import PhaseTimer
from autotune.measurement import StopReason, Window
from autotune.statistics import LEVEL, Estimate, rate_of_blocks, student_t

BLOCK_S = 0.2
"""A block lasts at least this long, seconds: long against launch jitter and the host's scheduling
slices, short against a window, so that a window of some seconds has tens of blocks."""

MIN_BLOCKS = 5
"""Blocks that a window waits for when its time is up: Student's factor over the square root of the
blocks is 2.5 for three, 1.6 for four, 1.2 for five, 0.9 for seven, while time grows with the
blocks: three turns of 16 workers with a batch of 512 filled 8 s on an H200, five take 13 s."""

OVERRUN = 2.0
"""A window that has too few steps when its time is up may go on up to this multiple of it."""


@dataclass(frozen=True)
class StepSeen:
    """What one step reports besides its marks.

    Attributes:
        samples: Samples in the batch that arrived.
        host_wait_s: Seconds that `next(loader)` took on the host.
    """

    samples: int
    host_wait_s: float


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When a window ends.

    Attributes:
        rel_halfwidth: Target for the interval's half-width as a share of the throughput.
        cap_s: Time cap in seconds.
        min_blocks: Blocks needed before the interval is believed.
        min_steps: Steps needed whatever the time.
        steps_per_block: Steps in a block.
        race_against: Throughput to beat, samples/s; None runs no race.
    """

    rel_halfwidth: float
    cap_s: float
    min_blocks: int
    min_steps: int
    steps_per_block: int
    race_against: float | None = None

    def decide(
        self, blocks: Sequence[float], steps: int, samples_per_step: float, elapsed_s: float
    ) -> tuple[StopReason, str | None] | None:
        """Return why the window ends now and the criterion left unmet, or None to go on.

        Args:
            blocks: Mean step time in seconds of each complete block.
            steps: Steps known to be finished.
            samples_per_step: Mean number of samples in a step.
            elapsed_s: Seconds since the window began.
        """
        rate = rate_of_blocks(blocks, samples_per_step)
        if rate is not None and len(blocks) >= self.min_blocks:
            width = rate.relative_halfwidth
            if width is not None and width <= self.rel_halfwidth:
                return StopReason.CONVERGED, None
            if self._outraced(rate):
                return StopReason.OUTRACED, None
        enough = steps >= self.min_steps and len(blocks) >= MIN_BLOCKS
        if elapsed_s >= self.cap_s and (enough or elapsed_s >= OVERRUN * self.cap_s):
            return StopReason.TIME_CAP, self._unmet(rate, len(blocks))
        return None

    def _outraced(self, rate: Estimate) -> bool:
        return (
            self.race_against is not None
            and rate.high is not None
            and rate.high < self.race_against
        )

    def _unmet(self, rate: Estimate | None, blocks: int) -> str:
        if blocks < self.min_blocks:
            return f"{blocks} of {self.min_blocks} blocks of {self.steps_per_block} steps"
        width = rate.relative_halfwidth if rate is not None else None
        shown = "unknown" if width is None else f"{width:.1%}"
        return f"half-width {shown} of the throughput; the target is {self.rel_halfwidth:.1%}"


class _Blocks:
    """Means of the complete blocks of a window so far; each step is looked at once.

    Args:
        size: Steps in a block.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.means: list[float] = []

    def update(self, step_s: Sequence[float]) -> None:
        """Take in the blocks that have become complete.

        Args:
            step_s: Seconds of all finished steps of the window.
        """
        for end in range((len(self.means) + 1) * self._size, len(step_s) + 1, self._size):
            self.means.append(sum(step_s[end - self._size : end]) / self._size)


def steps_per_block(num_workers: int, step_s: float) -> int:
    """Return how many steps a block has: a whole turn of the worker pool and `BLOCK_S` at least.

    Workers that started together finish together, so waits come in groups of `num_workers` steps
    (pytorch issue 19836); a block that holds whole groups has nearly independent means.

    Args:
        num_workers: DataLoader workers.
        step_s: Typical seconds of a step.
    """
    turn = max(1, num_workers)
    turns = math.ceil(BLOCK_S / max(step_s, 1e-9) / turn)
    return turn * max(1, turns)


def run_window(
    step: Callable[[PhaseTimer], StepSeen],
    *,
    timer: PhaseTimer,
    rule: StopRule,
    synchronize: Callable[[], None],
    watch: MachineWatch | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Window:
    """Run steps until the rule ends the window, and return what was seen.

    The window ends on a block's boundary, so that it holds whole turns of the worker pool, unless
    a single block would overrun the time cap.

    Args:
        step: Runs one optimizer step and marks its boundaries on the timer.
        timer: Records the boundaries.
        rule: When to end.
        synchronize: Waits for the device; called at both ends, never in between.
        watch: Watches the machine meanwhile; None for nobody.
        clock: Host clock in seconds.
    """
    student_t(1, LEVEL)  # the first call imports scipy: 0.5 s that belong to no window
    seen: list[StepSeen] = []
    blocks = _Blocks(rule.steps_per_block)
    samples = 0
    decision: tuple[StopReason, str | None] | None = None
    if watch is not None:
        watch.begin()
    synchronize()
    started = clock()
    timer.begin()
    while decision is None:
        for _ in range(rule.steps_per_block):
            seen.append(step(timer))
            samples += seen[-1].samples
            if len(seen) >= rule.min_steps and clock() - started > OVERRUN * rule.cap_s:
                break  # a block of slow steps; what it holds still counts
        finished = timer.finished_steps()
        blocks.update(finished)
        decision = rule.decide(blocks.means, len(finished), samples / len(seen), clock() - started)
    synchronize()
    elapsed_s = clock() - started
    machine = None if watch is None else watch.end()
    times = timer.read()
    stop, unmet = decision
    return Window(
        elapsed_s=elapsed_s,
        samples=samples,
        step_s=times.step_s,
        phase_s=times.phase_s,
        stall_s=times.stall_s,
        host_wait_s=tuple(each.host_wait_s for each in seen),
        steps_per_block=rule.steps_per_block,
        stop=stop,
        unmet=unmet,
        machine=machine,
    )
