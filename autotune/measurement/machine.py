"""The machine while a window ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """The machine during one window. None where it does not tell.

    Attributes:
        sm_clock_mhz: Mean clock of the device's multiprocessors, MHz.
        sm_clock_max_mhz: Highest such clock that the device allows, MHz.
        temperature_c: Highest temperature of the device, degrees Celsius.
        power_w: Mean power of the device, watts.
        energy_j: Energy that the device used in the window, joules.
        throttle_reasons: Why the device lowered its clocks, as NVML names it; empty if it did not.
        device_processes: Other processes that use the device.
        load_average: Load average over one minute.
        usable_cores: Cores this process may use, by affinity and cgroup quota.
        affinity_cores: Cores it may run on.
        quota_cores: Cores' worth of time its cgroup grants; None without a quota.
        quota_throttled_share: Share of the window in which the quota held its cgroup back.
        other_cpu_cores: Cores' worth of time that processes outside the trial used.
        steal_share: Share of the processor time that the hypervisor gave to others.
        disturbances: What may have made the window slower than the setting is, in words.
    """

    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    device_processes: int | None = None
    load_average: float | None = None
    usable_cores: float | None = None
    affinity_cores: int | None = None
    quota_cores: float | None = None
    quota_throttled_share: float | None = None
    other_cpu_cores: float | None = None
    steal_share: float | None = None
    disturbances: tuple[str, ...] = ()
