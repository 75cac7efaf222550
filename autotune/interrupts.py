"""Ctrl-C and SIGTERM held back for a moment; processes that end with those that started them."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Have descendants whose parent ends become this process's children, where the kernel can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Let an interrupt that comes within the block take effect at its end.

    For blocks that take moments. Python runs signal handlers in the main thread only; in any other
    there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[signal.Signals] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(signal.Signals(number))

    before = {number: signal.signal(number, hold) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in held[:1]:
            signal.raise_signal(first)
