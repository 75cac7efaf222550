"""Where the seconds of a trial went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds that the parts of a trial took.

    Attributes:
        start_s: From the request to a process that runs, with the device ready.
        setup_s: Building dataset, model and optimizer.
        first_step_s: The first step: compile and cuDNN's search fall here; None if none ended.
        warmup_s: All steps before the window, the first one and the draining of the prefetched
            batches included.
        ceiling_s: The window with a resident batch, and timing how long a step takes to queue.
        window_s: The timed window.
        profile_s: The profiled window, writing the trace included.
        loader_ceiling_s: The window of the loader alone, with using up what it had prepared.
        guard_s: The numerics guard's comparison with fp32 eager.
    """

    start_s: float | None = None
    setup_s: float | None = None
    first_step_s: float | None = None
    warmup_s: float | None = None
    ceiling_s: float | None = None
    window_s: float | None = None
    profile_s: float | None = None
    loader_ceiling_s: float | None = None
    guard_s: float | None = None
