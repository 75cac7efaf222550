"""A job on a batch that stays on the device: its warm-up and its rate if data were free."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.measure.compilation import CompileObserver
from autotune.measure.launch import queueing_s
from autotune.measure.timers import make_timer
from autotune.measure.warmup import COMPARED, last_change, settled
from autotune.measure.window import StopRule, run_window, steps_per_block
from autotune.statistics import Estimate
from autotune.trial.bench import Bench
from autotune.trial.job import TrainingJob

RESIDENT_WARMUP_STEPS = 3
"""Steps after the first one before anything is timed: CUDA graphs run eagerly once, record once
and replay from the third call on."""


@dataclass(frozen=True)
class Ceiling:
    """What a resident batch shows.

    Attributes:
        throughput: Samples/s with the batch resident on the device; None where not asked for.
        launch_s: Seconds that the host needs to queue one such step; None on a CPU.
    """

    throughput: Estimate | None
    launch_s: float | None


def warm_up(
    bench: Bench, job: TrainingJob, resident: Any, compiling: CompileObserver | None
) -> float:
    """Train on one batch until steps have settled; compile and cuDNN's search end here.

    Returns:
        Seconds of a step, as the last ones typically took.
    """
    repeated = itertools.repeat(resident)
    with bench.part("warmup_s", "warm-up" if compiling is None else "compile"):
        with bench.part("first_step_s"):
            step_s = first_s = bench.one_step(job, repeated)
        seen: list[float] = []
        while not settled(seen):
            if compiling is None and step_s > bench.request.probe.ceiling_s:
                break  # steps this slow are not about launches and caches
            if time_is_up(bench, seen):
                break
            step_s = bench.one_step(job, repeated)
            seen.append(step_s)
    if compiling is not None:
        compiling.warmed_up(first_s, step_s)
    return statistics.median(seen[-COMPARED:]) if seen else step_s


def measure_ceiling(bench: Bench, job: TrainingJob, resident: Any, step_s: float) -> Ceiling:
    """Return the throughput with the batch resident on the device, if it is asked for.

    Args:
        bench: The trial.
        job: Warm.
        resident: The batch, on the device.
        step_s: Typical seconds of a step.
    """
    probe, launch_s = bench.request.probe, None
    if not bench.request.measure_ceiling:
        return Ceiling(None, None)
    step = partial(job.step, itertools.repeat(resident))
    with bench.part("ceiling_s", "ceiling"):
        window = run_window(
            step,
            timer=make_timer(bench.device),
            rule=StopRule(
                rel_halfwidth=probe.rel_halfwidth,
                cap_s=probe.ceiling_s,
                min_blocks=probe.min_blocks,
                min_steps=2,
                steps_per_block=steps_per_block(0, step_s),
            ),
            synchronize=bench.synchronize,
        )
        if bench.device.type != "cpu":
            launch_s = queueing_s(
                partial(step, make_timer(bench.device)),
                synchronize=bench.synchronize,
                cap_s=probe.ceiling_s,
            )
    return Ceiling(window.throughput, launch_s)


def time_is_up(bench: Bench, step_s: list[float]) -> bool:
    """Return whether resident steps have had their time; note that they had not settled."""
    cap_s = bench.request.probe.ceiling_s
    # What the fixed number of steps takes, recording of CUDA graphs included, does not count.
    if sum(step_s[RESIDENT_WARMUP_STEPS:]) < cap_s:
        return False
    # Too few steps to compare are slow ones, which are not about launches and caches either.
    if len(step_s) >= 2 * COMPARED:
        bench.note(
            f"the warm-up on one batch ended after {len(step_s) + 1} steps by its time "
            f"(probe.ceiling_s={cap_s:g}), while they still changed by "
            f"{last_change(step_s):+.0%}: the device ceiling is uncertain"
        )
    return True
