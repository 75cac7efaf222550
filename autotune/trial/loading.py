"""The loader of a trial: using up what it prepared ahead, and its rate without any training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.measure.timers import HostTimer, Mark, PhaseTimer
from autotune.measure.window import StepSeen, StopRule, run_window, steps_per_block
from autotune.measurement import Window
from autotune.settings import Settings
from autotune.workloads.batch import batch_size_of

WAITS_S = 0.005
"""Seconds that `next(loader)` takes at least when it has to wait. A batch that lies ready is handed
over in 0.1 to 1 ms."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Drained:
    """How the batches that a loader had prepared ahead were used up.

    Attributes:
        batches: Batches taken.
        complete: Whether none is left that was prepared while nobody took any.
        step_s: Typical seconds of a step meanwhile.
    """

    batches: int
    complete: bool
    step_s: float


def drain(
    step: Callable[[PhaseTimer], StepSeen],
    *,
    timer: PhaseTimer,
    settings: Settings,
    cap_s: float,
    synchronize: Callable[[], None],
    clock: Clock = time.perf_counter,
) -> Drained:
    """Use up what the loader prepares ahead.

    While the first batch is on its way, the other workers fill their queues; until that is gone, a
    slow loader looks as fast as the device. It is gone once each worker has delivered and a step
    has to wait again. A job that never waits, for twice what the queues hold, is not held up by its
    loader.

    Args:
        step: Takes one batch and does with it what the window will do.
        timer: Suits the step.
        settings: How many workers, and how far ahead they prepare.
        cap_s: No further batch is taken after so many seconds, but two at least are.
        synchronize: Waits for the device.
        clock: Host clock in seconds.
    """
    turn = max(2, settings.num_workers)
    enough = max(2, 2 * settings.num_workers * (settings.prefetch_factor or 2))
    started = clock()
    timer.begin()
    done, waited = 0, settings.num_workers == 0
    while done < turn or (not waited and done < enough):
        seen = step(timer)
        done += 1
        waited = waited or (done > turn and seen.host_wait_s > WAITS_S)
        if done >= 2 and clock() - started > cap_s:
            break
    synchronize()
    # The first step may wait for the workers to start; it says nothing of the others.
    later = timer.read().step_s[1:]
    complete = done >= turn and (waited or done >= enough)
    return Drained(done, complete, sum(later) / len(later))


def load_only(
    batches: Iterator[Any], timer: PhaseTimer, clock: Clock = time.perf_counter
) -> StepSeen:
    """Take the next batch and drop it: a step whose phases but the first take no time."""
    asked = clock()
    batch = next(batches)
    host_wait_s = clock() - asked
    for mark in Mark:
        timer.mark(mark)
    return StepSeen(batch_size_of(batch), host_wait_s)


def loader_window(
    batches: Iterator[Any],
    *,
    settings: Settings,
    rel_halfwidth: float,
    min_blocks: int,
    cap_s: float,
    clock: Clock = time.perf_counter,
) -> tuple[Window, Drained]:
    """Time a running loader alone, by the rules of the window with training.

    Args:
        batches: Endless batches of a loader that has delivered before.
        settings: What it runs with.
        rel_halfwidth: As in `StopRule`.
        min_blocks: As in `StopRule`.
        cap_s: Time cap of the window, and of the draining before it.
        clock: Host clock in seconds.
    """
    step = partial(load_only, batches, clock=clock)
    drained = drain(
        step,
        timer=HostTimer(clock),
        settings=settings,
        cap_s=cap_s,
        synchronize=_nothing,
        clock=clock,
    )
    window = run_window(
        step,
        timer=HostTimer(clock),
        rule=StopRule(
            rel_halfwidth=rel_halfwidth,
            cap_s=cap_s,
            min_blocks=min_blocks,
            min_steps=2,
            steps_per_block=steps_per_block(settings.num_workers, drained.step_s),
        ),
        synchronize=_nothing,
        clock=clock,
    )
    return window, drained


def _nothing() -> None:
    """There is no device in it to wait for."""
