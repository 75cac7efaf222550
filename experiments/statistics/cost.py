"""What a look of the stop rule costs, in a window of 100,000 steps.

PYTHONPATH=. python experiments/statistics/cost.py
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from autotune.measure.timers import HostTimer, Mark
from autotune.measure.window import StepSeen, StopRule, run_window

STEPS, BLOCK = 100_000, 2_500


def looks() -> list[float]:
    """Return the seconds of each look: a window of 40 blocks on a scripted clock."""
    step_s = np.random.default_rng(0).lognormal(np.log(80e-6), 0.5, STEPS)
    now = 0.0
    took: list[float] = []

    def clock() -> float:
        return now

    class Timed(StopRule):
        def decide(self, *seen: object) -> object:  # type: ignore[override]
            decision = super().decide(*seen)  # type: ignore[arg-type]
            took.append(time.perf_counter() - begun[0])
            return decision

    class Timer(HostTimer):
        def finished_steps(self) -> object:  # type: ignore[override]
            begun[0] = time.perf_counter()
            return super().finished_steps()

    begun = [0.0]
    timer = Timer(clock)

    def one(timer: HostTimer) -> StepSeen:
        nonlocal now
        now += float(step_s[len(timer._marks) // len(Mark)])
        for mark in Mark:
            timer.mark(mark)
        return StepSeen(8, 0.0)

    rule = Timed(rel_halfwidth=1e-6, cap_s=8.0, min_blocks=6, min_steps=3, steps_per_block=BLOCK)
    run_window(one, timer=timer, rule=rule, synchronize=lambda: None, clock=clock)  # type: ignore[arg-type]
    return took


if __name__ == "__main__":
    took = [1e3 * each for each in looks()]
    print(
        f"{len(took)} looks: median {statistics.median(took):.2f} ms, last {took[-1]:.2f} ms, "
        f"largest {max(took):.2f} ms, together {sum(took):.0f} ms"
    )
