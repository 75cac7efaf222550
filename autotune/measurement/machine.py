"""The machine while a window ran, and whether it was quiet enough for the figure to count."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

OTHERS_FROM = 0.10
"""Share of the usable cores that others must take to count as a disturbance. A job that keeps all
its cores busy loses up to the share that is taken. Below a tenth lie the system's own daemons and
the error of the counters: they advance in ticks of 10 ms for each processor and process."""

LOST_FROM = 0.02
"""Share of the processor time stolen by the hypervisor, or of the device's time used by another
process, from which on a window is disturbed. Both are gone for the trial, whatever else is idle;
2 % is the half-width that a search's interval promises (`probe.rel_halfwidth`)."""


class ThrottleReason(StrEnum):
    """Why a device holds its clocks down, as NVML's clock event reasons name it."""

    SW_POWER_CAP = "sw power cap"
    """The power limit: a card's normal life under full load, and no disturbance."""
    SYNC_BOOST = "sync boost"
    """Held to the clocks of the other devices of its group: a setting, and no disturbance."""
    SW_THERMAL = "sw thermal"
    HW_SLOWDOWN = "hw slowdown"
    HW_THERMAL = "hw thermal"
    HW_POWER_BRAKE = "hw power brake"


THROTTLED = frozenset(
    {
        ThrottleReason.SW_THERMAL,
        ThrottleReason.HW_SLOWDOWN,
        ThrottleReason.HW_THERMAL,
        ThrottleReason.HW_POWER_BRAKE,
    }
)
"""Reasons that come from heat or the power supply, not from the card and its load: a cooler or
better fed one would have been faster. They are seen in samples, and one sample in any window of
fewer than 50 stands for more than `LOST_FROM` of it, so that one is enough."""


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """The machine during one window. None where it does not tell.

    Attributes:
        sm_clock_mhz: Mean clock of the device's multiprocessors, MHz.
        sm_clock_max_mhz: Highest such clock that the device allows, MHz.
        temperature_c: Highest temperature of the device, degrees Celsius.
        power_w: Mean power of the device, watts.
        energy_j: Energy that the device used in the window, joules; without that of the host.
        throttle_reasons: Why the device held its clocks down; empty if it did not.
        device_processes: Other processes that use the device, busy or not.
        device_other_share: Share of the time in which kernels of those processes ran.
        load_average: Load average over one minute.
        usable_cores: Cores this process may keep busy, by affinity and cgroup quota.
        affinity_cores: Cores it may run on.
        quota_cores: Cores' worth of time its cgroup grants; None without a quota.
        quota_throttled_share: Share of the quota's periods (mostly 0.1 s) in which it was used up
            and held its cgroup back.
        other_cpu_cores: Cores' worth of time that processes outside the trial used of
            `affinity_cores`.
        steal_share: Share of the processor time wanted on those that the hypervisor gave to others.
    """

    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    throttle_reasons: tuple[ThrottleReason, ...] = ()
    device_processes: int | None = None
    device_other_share: float | None = None
    load_average: float | None = None
    usable_cores: float | None = None
    affinity_cores: int | None = None
    quota_cores: float | None = None
    quota_throttled_share: float | None = None
    other_cpu_cores: float | None = None
    steal_share: float | None = None

    @property
    def disturbances(self) -> tuple[str, ...]:
        """What may have made the window slower than the setting is, in words.

        The machine's normal limits are none: see `limits`.
        """
        found = []
        if self._taken_share >= OTHERS_FROM:
            found.append(
                f"other processes used {self.other_cpu_cores:.1f} of {self.affinity_cores} cores"
            )
        if (self.steal_share or 0.0) >= LOST_FROM:
            found.append(f"the hypervisor took {_percent(self.steal_share)} of the processor time")
        if (self.device_other_share or 0.0) >= LOST_FROM:
            share = _percent(self.device_other_share)
            found.append(f"another process used the device in {share} of the time")
        if reasons := [reason for reason in self.throttle_reasons if reason in THROTTLED]:
            found.append(f"the device lowered its clocks{self._clocks}: {', '.join(reasons)}")
        return tuple(found)

    @property
    def limits(self) -> tuple[str, ...]:
        """What held the window back that belongs to the machine as it is, in words."""
        found = []
        if ThrottleReason.SW_POWER_CAP in self.throttle_reasons:
            found.append(f"the power limit held the device's clocks{self._clocks}")
        if self.quota_throttled_share:
            found.append(
                f"the CPU quota of {self.quota_cores:g} cores was used up in "
                f"{_percent(self.quota_throttled_share)} of its periods"
            )
        return tuple(found)

    @property
    def lost_share(self) -> float:
        """Share of its speed that the window may have lost to disturbances; 0 if none is known.

        A bound to order windows of one setting by, not an estimate: the losses need not add up.
        """
        lost = self._taken_share + (self.steal_share or 0.0) + (self.device_other_share or 0.0)
        if any(reason in THROTTLED for reason in self.throttle_reasons):
            lost += 1 - (self.sm_clock_mhz or 0.0) / (self.sm_clock_max_mhz or 1.0)
        return lost

    @property
    def _taken_share(self) -> float:
        """Share of the usable cores that others took.

        Under a quota, only what they take of more than it leaves free matters: with a quota of 16
        of 64 cores, 48 can be busy with other things.
        """
        if self.other_cpu_cores is None or not self.affinity_cores or not self.usable_cores:
            return 0.0
        left = self.affinity_cores - self.other_cpu_cores
        return max(0.0, 1 - left / self.usable_cores)

    @property
    def _clocks(self) -> str:
        if self.sm_clock_mhz is None or self.sm_clock_max_mhz is None:
            return ""
        return f" to {self.sm_clock_mhz:.0f} of {self.sm_clock_max_mhz:.0f} MHz"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"
