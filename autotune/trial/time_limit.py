"""A limit on what the user's code may take, from inside its process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLong(BaseException):  # noqa: N818 - names what it is
    """The time is up. Not an `Exception`: the user's code must not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what is done meanwhile once it has taken so many seconds.

    Works in the main thread, for Python code and calls that a signal interrupts; compiled code that
    does not return is left to the limit that is enforced from outside the process.

    Args:
        seconds: What it may take.

    Raises:
        TooLong: It took longer.
    """

    def late(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
