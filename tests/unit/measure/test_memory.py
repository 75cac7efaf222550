import multiprocessing

import torch

from autotune.measure import memory


def test_a_peak_that_is_over_is_still_seen():
    before = memory.host_peak_bytes()
    large = torch.ones(200 << 20, dtype=torch.uint8)
    del large
    assert memory.host_peak_bytes() - before > 150 << 20


def _hold(pipe):
    kept = b"x" * (100 << 20)  # no torch here: its threads do not survive a fork
    pipe.send(len(kept))
    pipe.recv()


def test_children_count_and_pages_that_they_share_count_once():
    before = memory.host_peak_bytes()
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_hold, args=(theirs,))
    child.start()
    ours.recv()
    more = memory.host_peak_bytes() - before
    ours.send(None)
    child.join()
    assert 90 << 20 < more < 200 << 20


def test_a_machine_without_dev_shm_has_no_figure(monkeypatch):
    assert memory.shm_bytes() is None or memory.shm_bytes() >= 0
    monkeypatch.setattr(memory, "_SHM", "/no/such/folder")
    assert memory.shm_bytes() is None


def test_on_a_cpu_the_device_has_no_figures():
    use = memory.memory_use(torch.device("cpu"))
    assert (use.peak_allocated_bytes, use.oom_count) == (None, None)
    assert use.host_peak_bytes > 0
