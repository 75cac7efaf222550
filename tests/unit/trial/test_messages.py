from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from autotune.trial.messages import (
    MOST_BYTES,
    Inbox,
    Kind,
    Message,
    UnreadableMessage,
    send,
)
from autotune.trial.pulse import Pulse, beating


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            continue  # the test closed it


def test_messages_arrive_whole_and_in_order(pipe: tuple[int, int]) -> None:
    inbox = Inbox(pipe[0])
    assert list(inbox.read()) == []
    send(pipe[1], Kind.STAGE, "fenêtre".encode())
    send(pipe[1], Kind.BEAT, b"12")
    send(pipe[1], Kind.RECORD, b"")
    assert list(inbox.read()) == [
        Message(Kind.STAGE, "fenêtre".encode()),
        Message(Kind.BEAT, b"12"),
        Message(Kind.RECORD, b""),
    ]


def test_one_longer_than_the_pipe_arrives(pipe: tuple[int, int]) -> None:
    body = os.urandom(1_000_000)
    sender = threading.Thread(target=send, args=(pipe[1], Kind.RECORD, body))
    sender.start()
    inbox = Inbox(pipe[0])
    found: list[Message] = []
    while not found:
        found = list(inbox.read())
    sender.join()
    assert found == [Message(Kind.RECORD, body)]


def test_the_end_comes_after_what_was_sent(pipe: tuple[int, int]) -> None:
    send(pipe[1], Kind.STAGE, b"setup")
    os.write(pipe[1], b"R\x00")
    os.close(pipe[1])
    messages = Inbox(pipe[0]).read()
    assert next(messages) == Message(Kind.STAGE, b"setup")
    with pytest.raises(EOFError):
        next(messages)


@pytest.mark.parametrize("stray", [b"hello world", b"R\xff\xff\xff\xff"])
def test_what_came_before_something_unreadable_is_kept(pipe: tuple[int, int], stray: bytes) -> None:
    send(pipe[1], Kind.SCORED, b"{}")
    os.write(pipe[1], stray)
    messages = Inbox(pipe[0]).read()
    assert next(messages) == Message(Kind.SCORED, b"{}")
    with pytest.raises(UnreadableMessage):
        next(messages)


def test_too_long_a_message_is_not_sent_at_all(pipe: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at most"):
        send(pipe[1], Kind.RECORD, bytes(MOST_BYTES + 1))
    assert list(Inbox(pipe[0]).read()) == []


def test_beats_tell_the_steps_until_nobody_listens() -> None:
    pulse, told, enough = Pulse(), [], threading.Event()

    def tell(steps: int) -> None:
        told.append(steps)
        pulse.step()
        if len(told) == 3:
            enough.set()
            raise BrokenPipeError

    with beating(pulse, tell, every_s=0.001):
        assert enough.wait(30)
    assert told == [0, 1, 2]
