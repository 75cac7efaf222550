"""What the kernel counts of processors: made-up readings, and real ones beside busy processes."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
import torch

from autotune.measure import machine
from autotune.measure.machine import (
    MIN_COUNTED_S,
    HostCounters,
    MachineWatch,
    family,
    host_state,
    read_host,
)

BUSY = "import os; print(os.getpid(), flush=True)\nwhile True: pass"
START = HostCounters(
    at_s=10.0, busy_s=100.0, idle_s=50.0, steal_s=1.0, own_s=40.0, periods=10, throttled=2
)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(machine, "allowed_cpus", lambda: frozenset({0, 1}))
    monkeypatch.setattr(machine, "cgroup_cpu_quota", lambda: None)


@pytest.mark.usefixtures("two_cores")
def test_others_have_what_is_busy_and_not_ours():
    end = replace(START, at_s=12.0, busy_s=103.9, idle_s=50.1, own_s=40.5)
    state = host_state(START, end)
    assert state.other_cpu_cores == pytest.approx(1.7)
    assert state.affinity_cores == state.usable_cores == 2
    assert state.disturbances == ("other processes used 1.7 of 2 cores",)


@pytest.mark.usefixtures("two_cores")
def test_steal_is_a_share_of_the_time_that_was_wanted():
    end = replace(START, at_s=12.0, busy_s=100.9, idle_s=53.0, steal_s=1.1, own_s=40.9)
    assert host_state(START, end).steal_share == pytest.approx(0.1)


def test_a_quota_is_told_and_the_share_of_its_periods_that_it_cut_short(monkeypatch):
    monkeypatch.setattr(machine, "allowed_cpus", lambda: frozenset(range(64)))
    monkeypatch.setattr(machine, "cgroup_cpu_quota", lambda: 15.5)
    state = host_state(START, replace(START, at_s=12.0, periods=30, throttled=12))
    assert (state.usable_cores, state.affinity_cores, state.quota_cores) == (15.5, 64, 15.5)
    assert state.quota_throttled_share == 0.5
    assert host_state(START, replace(START, at_s=12.0)).quota_throttled_share is None


@pytest.mark.parametrize(
    "end",
    [
        replace(START, at_s=10 + MIN_COUNTED_S / 2, busy_s=101.0),  # too few ticks
        replace(START, at_s=12.0),  # a sandbox whose counters stand still
        replace(START, at_s=12.0, busy_s=None, idle_s=None, steal_s=None),
    ],
    ids=["short", "frozen", "absent"],
)
def test_what_is_not_counted_is_not_told(end):
    state = host_state(START, end)
    assert state.other_cpu_cores is None
    assert state.steal_share is None
    assert state.disturbances == ()


def test_quota_periods_of_the_innermost_cgroup_with_a_quota(tmp_path):
    inner, outer = tmp_path / "a", tmp_path / "b"
    for folder, text in ((inner, "usage_usec 5\n"), (outer, "nr_periods 9\nnr_throttled 3\n")):
        folder.mkdir()
        (folder / "cpu.stat").write_text(text)
    assert machine._quota_periods((tmp_path / "absent", inner, outer)) == (9, 3)
    assert machine._quota_periods((inner,)) == (None, None)


def test_processors_without_a_readable_proc(monkeypatch):
    def refused(**options):
        raise PermissionError

    monkeypatch.setattr(psutil, "cpu_times", refused)
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda self: (_ for _ in ()).throw(OSError))
    read = read_host()
    assert (read.busy_s, read.idle_s, read.steal_s, read.own_s) == (None,) * 4


def test_processors_that_a_container_numbers_anew(monkeypatch):
    one = psutil.cpu_times(percpu=True)[0]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [one, one])
    monkeypatch.setattr(machine, "allowed_cpus", lambda: frozenset({40, 41}))
    busy_s, idle_s, steal_s = machine._processors()
    assert idle_s == pytest.approx(2 * (one.idle + one.iowait))
    monkeypatch.setattr(machine, "allowed_cpus", lambda: frozenset({0, 41}))
    assert machine._processors()[0] == pytest.approx(busy_s)
    monkeypatch.setattr(machine, "allowed_cpus", lambda: frozenset({40}))
    assert machine._processors() == (None, None, None)


@pytest.fixture
def stranger():
    """Return a busy process that is no child of ours: its parent is gone at once."""
    shell = f"{sys.executable} -c '{BUSY}' &"
    with subprocess.Popen(["sh", "-c", shell], stdout=subprocess.PIPE, text=True) as started:
        pid = int(started.stdout.readline())
        yield psutil.Process(pid)
        os.kill(pid, signal.SIGKILL)


def used_s(process):
    times = process.cpu_times()
    return times.user + times.system


def test_a_busy_stranger_is_seen(stranger):
    if machine._processors()[0] is None:
        pytest.skip("no counters here")
    watch = MachineWatch(torch.device("cpu"))
    watch.begin()
    begun_s, begun_at_s = used_s(stranger), time.perf_counter()
    while used_s(stranger) - begun_s < 0.5 or time.perf_counter() - begun_at_s < 0.6:
        time.sleep(0.05)
    elapsed_s = time.perf_counter() - begun_at_s
    state = watch.end()
    # The whole machine's counters are drawn at ticks: a fifth is left for that.
    assert state.other_cpu_cores * elapsed_s > 0.8 * (used_s(stranger) - begun_s) - 0.05
    assert state.usable_cores > 0
    assert stranger.pid not in family()


def test_children_are_ours_also_once_they_ended():
    before_s = read_host().own_s
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.DEVNULL) as child:
        busy = psutil.Process(child.pid)
        while used_s(busy) < 0.3:
            time.sleep(0.02)
        assert read_host().own_s - before_s >= 0.29
        assert child.pid in family()
        child.kill()
    assert read_host().own_s - before_s >= 0.29
    assert {os.getpid(), os.getppid()} <= family()


def test_a_cpu_has_no_device_figures():
    watch = MachineWatch(torch.device("cpu"))
    watch.begin()
    state = watch.end()
    assert state.sm_clock_mhz is None
    assert state.energy_j is None
    assert state.load_average is not None


def test_an_end_needs_a_beginning():
    with pytest.raises(RuntimeError, match="begin"):
        MachineWatch(torch.device("cpu")).end()
