import signal
import threading

import pytest

from autotune.interrupts import held_interrupts


@pytest.fixture(autouse=True)
def _as_the_command_has_it():
    def interrupt(number, frame):
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_block(number):
    done = []

    def work():
        with held_interrupts():
            signal.raise_signal(number)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt, match=number.name):
        work()
    assert done == ["all of it"]


def test_several_count_as_one_and_the_handlers_are_back():
    def work():
        with held_interrupts():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            work()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_without_an_interrupt_nothing_happens_and_errors_pass():
    def work():
        with held_interrupts():
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        work()


def test_other_threads_are_left_alone():
    seen = []

    def work():
        with held_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    mine = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [mine]
