"""How long the host needs to queue a step: the limit of a job whose kernels are small."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

LAUNCH_STEPS = 3
"""Steps that are timed; the median counts, so one hiccup of the host does not."""


def queueing_s(
    step: Callable[[], object],
    *,
    synchronize: Callable[[], None],
    cap_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the seconds after which the call of a step returns, the device not waited for.

    Each step begins with an empty queue. Several in a row would fill it: CUDA's launch queue holds
    about 1,000 kernels, and a launch into a full one waits for the device. A step of some thousand
    kernels fills it alone, so then, and where the job itself waits for the device (`loss.item()`,
    GradScaler's look at the gradients), the figure is too high, at most the device's time.

    Args:
        step: Queues one training step.
        synchronize: Waits for the device.
        cap_s: No further step is begun after so many seconds.
        clock: Host clock in seconds.
    """
    seconds: list[float] = []
    synchronize()
    began = clock()
    while not seconds or (len(seconds) < LAUNCH_STEPS and clock() - began < cap_s):
        asked = clock()
        step()
        seconds.append(clock() - asked)
        synchronize()
    return statistics.median(seconds)
