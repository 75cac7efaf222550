"""The heartbeat of a trial: how many steps it has done, told about once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT_S = 1.0
"""Seconds between two beats. One is a system call of some bytes."""


class Pulse:
    """Counts the steps of a trial.

    Attributes:
        steps: Steps trained, and batches loaded without training.
    """

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        """Count one step."""
        self.steps += 1


@contextmanager
def beating(pulse: Pulse, tell: Callable[[int], None], every_s: float = BEAT_S) -> Iterator[None]:
    """Tell the steps from a thread of its own while the block runs.

    The thread sleeps between beats, and is none of a loader's workers' affairs: forks leave it out.

    Args:
        pulse: What is counted.
        tell: Given the steps so far. What it raises ends the telling, not the trial.
        every_s: Seconds between two.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            try:
                tell(pulse.steps)
            except OSError:
                return  # nobody listens any more

    thread = threading.Thread(target=beat, name="autotune-pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
