"""Queueing a step, on a clock that only moves when the host works or waits."""

import pytest

from autotune.measure.launch import LAUNCH_STEPS, queueing_s


class Device:
    """A host that queues, and a device that runs behind it."""

    def __init__(self, queueing_s, running_s):
        self.now_s = 0.0
        self._done_s = 0.0
        self._queueing_s = iter(queueing_s)
        self._running_s = running_s
        self.steps = 0

    def clock(self):
        return self.now_s

    def step(self):
        self.now_s += next(self._queueing_s)
        self._done_s = max(self._done_s, self.now_s) + self._running_s
        self.steps += 1

    def synchronize(self):
        self.now_s = max(self.now_s, self._done_s)


def measure(device, cap_s=10.0):
    return queueing_s(device.step, synchronize=device.synchronize, cap_s=cap_s, clock=device.clock)


def test_the_device_is_not_waited_for():
    assert measure(Device([0.01] * 9, running_s=0.5)) == pytest.approx(0.01)


def test_one_hiccup_of_the_host_does_not_count():
    assert measure(Device([0.01, 0.4, 0.01], running_s=0.0)) == pytest.approx(0.01)


def test_slow_steps_end_at_the_cap_and_nothing_is_left_running():
    device = Device([0.01] * 9, running_s=3.0)
    measure(device, cap_s=2.0)
    assert device.steps == 1 < LAUNCH_STEPS
    assert device.now_s == pytest.approx(3.01)
