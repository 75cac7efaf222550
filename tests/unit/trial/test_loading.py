"""The loader alone, on a clock that moves when a batch is taken."""

import pytest
import torch

from autotune.measure.timers import HostTimer
from autotune.measurement import Phase, StopReason
from autotune.settings import Settings
from autotune.trial.loading import drain, load_only, loader_window


class Loader:
    """Workers that had filled their queues, then deliver a turn of batches at once."""

    def __init__(self, workers, ready, turn_s, batch=8):
        self.now_s = 0.0
        self.taken = 0
        self._workers, self._ready, self._turn_s = workers, ready, turn_s
        self._batch = torch.zeros(batch, 2)

    def clock(self):
        return self.now_s

    def __iter__(self):
        return self

    def __next__(self):
        at = self.taken - self._ready
        self.taken += 1
        self.now_s += self._turn_s if at >= 0 and at % self._workers == 0 else 0.0001
        return self._batch


def settings(workers, prefetch=2):
    return Settings(batch_size=8, num_workers=workers, prefetch_factor=prefetch)


def window(loader, setting, cap_s=20.0):
    return loader_window(
        loader, settings=setting, rel_halfwidth=0.02, min_blocks=6, cap_s=cap_s, clock=loader.clock
    )


def test_what_was_prepared_ahead_does_not_count():
    loader = Loader(4, ready=8, turn_s=0.4)
    seen, drained = window(loader, settings(4))
    assert drained.complete
    assert drained.batches == 9, "the eight that lay ready, and the first to be waited for"
    assert seen.steps % 4 == 0
    assert seen.samples_per_s == pytest.approx(4 * 8 / 0.4003, rel=0.01)
    assert seen.stop is StopReason.CONVERGED


def test_the_loader_alone_has_no_other_phase():
    seen, _ = window(Loader(2, ready=4, turn_s=0.1), settings(2))
    assert seen.stall_s == seen.host_wait_s == seen.phase_s[Phase.DATA]
    assert seen.phase_ms(Phase.FORWARD) == 0


def test_a_cap_in_the_middle_of_what_lay_ready_is_told():
    loader = Loader(4, ready=1000, turn_s=0.4)
    _, drained = window(loader, settings(4, prefetch=100), cap_s=0.02)
    assert not drained.complete


def test_without_workers_nothing_is_prepared():
    loader = Loader(1, ready=0, turn_s=0.1)
    seen, drained = window(loader, settings(0, prefetch=None))
    assert (drained.batches, drained.complete) == (2, True)
    assert seen.samples_per_s == pytest.approx(80)


def test_a_loader_that_never_makes_wait_is_drained_after_twice_its_queues():
    loader = Loader(2, ready=10**6, turn_s=0.1)
    drained = drain(
        lambda timer: load_only(loader, timer, loader.clock),
        timer=HostTimer(loader.clock),
        settings=settings(2, prefetch=4),
        cap_s=5.0,
        synchronize=lambda: None,
        clock=loader.clock,
    )
    assert (drained.batches, drained.complete) == (16, True)
    assert drained.step_s == pytest.approx(0.0001)
