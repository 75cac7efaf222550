"""Messages from a trial's process to whoever started it, over one pipe.

A message is a byte for its kind, four bytes for its length, and that many bytes. The reader takes
what is there and never waits for the rest of a message: a process that is stopped in the middle of
one, or a stray write of the user's code into the pipe, cannot hold it up.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

_HEAD = struct.Struct("!BI")

MOST_BYTES = 64_000_000
"""No message is longer: a record with every step of its window has some hundred kilobytes."""

_CHUNK = 1 << 16


class Kind(IntEnum):
    """What a message holds."""

    STAGE = ord("S")
    """Name of the stage that begins."""
    BEAT = ord("B")
    """Steps that the trial has trained or loaded so far, as a decimal number."""
    SCORED = ord("M")
    """A measurement as JSON, once its score stands; the last one counts."""
    RECORD = ord("R")
    """One record as JSON; the last message."""


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        kind: What it holds.
        body: That.
    """

    kind: Kind
    body: bytes


class UnreadableMessage(Exception):  # noqa: N818 - names what it is
    """What came over the pipe is no message."""


def send(fd: int, kind: Kind, body: bytes) -> None:
    """Write one message; waits while the pipe is full.

    Args:
        fd: Writing end of the pipe.
        kind: What it holds.
        body: That.

    Raises:
        OSError: The pipe is closed.
        ValueError: The message is too long.
    """
    if len(body) > MOST_BYTES:
        raise ValueError(f"a message of {len(body)} bytes; at most {MOST_BYTES} are allowed")
    left = memoryview(_HEAD.pack(kind, len(body)) + body)
    while left:
        left = left[os.write(fd, left) :]


class Inbox:
    """Reads messages as their bytes arrive.

    Args:
        fd: Reading end of the pipe; is set not to block.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._buffer = bytearray()

    def read(self) -> Iterator[Message]:
        """Yield the messages that are complete by now; waits for nothing.

        Raises:
            EOFError: Nobody can write any more, and what had come has been given out.
            UnreadableMessage: What comes next is no message.
        """
        ended = self._fill()
        while (message := self._first()) is not None:
            yield message
        if ended:
            raise EOFError

    def _fill(self) -> bool:
        """Take what is there; return whether the pipe has ended."""
        while len(self._buffer) <= MOST_BYTES:
            try:
                chunk = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not chunk:
                return True
            self._buffer += chunk
        return False

    def _first(self) -> Message | None:
        if len(self._buffer) < _HEAD.size:
            return None
        code, length = _HEAD.unpack_from(self._buffer)
        try:
            kind = Kind(code)
        except ValueError:
            raise UnreadableMessage(f"a message of the unknown kind {code}") from None
        if length > MOST_BYTES:
            raise UnreadableMessage(f"a message of {length} bytes")
        end = _HEAD.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEAD.size : end])
        del self._buffer[:end]
        return Message(kind, body)
