"""The machine during a timed window: its device, and the processors that the host shares out.

Nothing of the host is sampled: the kernel counts what each processor and process does, so that two
readings, before and after, tell all of it at no cost in between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
import torch

from autotune.environment import allowed_cpus, cgroup_cpu_quota, cpu_cgroups
from autotune.measure.nvml import DeviceGauges, DeviceWatch, device_name, open_gauges
from autotune.measurement import MachineState

MIN_COUNTED_S = 0.5
"""Seconds of a window from which on processor time is told: counters advance in ticks of 10 ms, so
that a tenth of one core is 5 of them in such a window."""


@dataclass(frozen=True, kw_only=True)
class HostCounters:
    """What the kernel has counted so far. None where it does not tell.

    Attributes:
        at_s: When, on the host's clock.
        busy_s: Seconds that the allowed processors were busy, together.
        idle_s: Seconds that they were not, together.
        steal_s: Seconds that they wanted to run and the hypervisor did not let them, together.
        own_s: Processor seconds of this process and all its children, the ended ones included.
        periods: Periods of the cgroup's quota in which the cgroup ran.
        throttled: Those in which the quota was used up.
    """

    at_s: float
    busy_s: float | None = None
    idle_s: float | None = None
    steal_s: float | None = None
    own_s: float | None = None
    periods: int | None = None
    throttled: int | None = None


def read_host() -> HostCounters:
    """Return the counters of the processors that this process may run on, and of its cgroup."""
    own_s = _own_s()
    busy_s, idle_s, steal_s = _processors()
    periods, throttled = _quota_periods(cpu_cgroups())
    return HostCounters(
        at_s=time.perf_counter(),
        busy_s=busy_s,
        idle_s=idle_s,
        steal_s=steal_s,
        own_s=own_s,
        periods=periods,
        throttled=throttled,
    )


def host_state(before: HostCounters, after: HostCounters) -> MachineState:
    """Return the host's part of the machine's state between two readings."""
    affinity, quota = len(allowed_cpus()), cgroup_cpu_quota()
    elapsed_s = after.at_s - before.at_s
    busy_s = _grown(before.busy_s, after.busy_s)
    own_s = _grown(before.own_s, after.own_s)
    steal_s = _grown(before.steal_s, after.steal_s)
    periods = _grown(before.periods, after.periods)
    throttled = _grown(before.throttled, after.throttled)
    counted = elapsed_s >= MIN_COUNTED_S and bool(busy_s or _grown(before.idle_s, after.idle_s))
    others = steal = None
    if counted and busy_s is not None:
        others = None if own_s is None else max(0.0, busy_s - own_s) / elapsed_s
        wanted_s = busy_s + (steal_s or 0.0)
        steal = None if steal_s is None or not wanted_s else steal_s / wanted_s
    return MachineState(
        load_average=_load_average(),
        usable_cores=affinity if quota is None else min(affinity, quota),
        affinity_cores=affinity,
        quota_cores=quota,
        quota_throttled_share=throttled / periods if throttled is not None and periods else None,
        other_cpu_cores=others,
        steal_share=steal,
    )


class MachineWatch:
    """Watches the machine during windows, one after the other.

    Made early, well before the first window: finding the device may take a moment.

    Args:
        device: Device of the trial.
        gauges: Returns the device's gauges; None to ask NVML for them.
        host: Returns the host's counters.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        gauges: Callable[[], DeviceGauges | None] | None = None,
        host: Callable[[], HostCounters] = read_host,
    ) -> None:
        name = device_name(device)
        if gauges is None and name is not None:
            gauges = partial(open_gauges, name)
        self._host = host
        self._device = None if gauges is None else DeviceWatch(gauges, own=os.getpid(), ours=family)
        self._before: HostCounters | None = None

    def begin(self) -> None:
        """Read what is counted; the window follows at once."""
        if self._device is not None:
            self._device.begin()
        self._before = self._host()

    def end(self) -> MachineState:
        """Return the machine's state since `begin`.

        Raises:
            RuntimeError: There was no `begin`.
        """
        if self._before is None:
            raise RuntimeError("MachineWatch.end() without begin()")
        host = host_state(self._before, self._host())
        if self._device is None:
            return host
        device = self._device.end()
        return replace(
            host,
            sm_clock_mhz=device.sm_clock_mhz,
            sm_clock_max_mhz=device.sm_clock_max_mhz,
            temperature_c=device.temperature_c,
            power_w=device.power_w,
            energy_j=device.energy_j,
            throttle_reasons=device.throttle_reasons,
            device_processes=device.device_processes,
            device_other_share=device.device_other_share,
        )


def family() -> set[int]:
    """Return the numbers of this process, its children, and what started it (the controller)."""
    me = psutil.Process()
    try:
        return {me.pid, *(each.pid for each in (*me.parents(), *me.children(recursive=True)))}
    except psutil.Error:
        return {me.pid}


def _own_s() -> float | None:
    """Return the processor seconds of this process and its children, the ended ones included.

    A process's own time moves to its parent's account of children when it has ended, so that the
    sum over the tree only grows.
    """
    me = psutil.Process()
    total = 0.0
    try:
        for process in (me, *me.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += sum(times[:4])  # user, system, children's user, children's system
    except (psutil.Error, OSError):
        return None
    return total


def _processors() -> tuple[float | None, float | None, float | None]:
    """Return busy, idle and stolen seconds of the processors that this process may run on."""
    try:
        every = psutil.cpu_times(percpu=True)
    except (OSError, RuntimeError, IndexError, ValueError):  # no /proc/stat, or one of its own kind
        return None, None, None
    allowed = allowed_cpus()
    if max(allowed) < len(every):
        times = [every[number] for number in allowed]
    elif len(every) == len(allowed):
        times = every  # a container's own list (lxcfs), numbered anew
    else:
        return None, None, None
    idle_s = sum(each.idle + getattr(each, "iowait", 0.0) for each in times)
    steal_s = sum(getattr(each, "steal", 0.0) for each in times)
    # A guest's time is part of the user's already.
    parts = ("user", "nice", "system", "irq", "softirq")
    busy_s = sum(getattr(each, part, 0.0) for each in times for part in parts)
    return busy_s, idle_s, steal_s


def _quota_periods(cgroups: tuple[Path, ...]) -> tuple[int | None, int | None]:
    """Return periods and throttled periods of the innermost cgroup that has a quota.

    Counted in periods, not in the throttled time that stands beside them: that is a sum over
    processors, in units that differ between the cgroup versions, and can exceed the time passed.
    """
    for cgroup in cgroups:
        try:
            words = dict(line.split() for line in (cgroup / "cpu.stat").read_text().splitlines())
            periods, throttled = int(words["nr_periods"]), int(words["nr_throttled"])
        except (OSError, KeyError, ValueError):  # no such file; the root of the hierarchy
            continue
        if periods > 0:
            return periods, throttled
    return None, None


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
