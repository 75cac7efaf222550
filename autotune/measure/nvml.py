"""What NVML tells of a device while a window runs. The door to pynvml.

Counters and states are read before and after the window. Two things pass in between: the clock, and
the reasons that hold it down. They are sampled by a thread. NVML's own buffers
(`nvmlDeviceGetSamples`) would spare it, but they have no reasons, and many drivers and virtual
devices offer none.

Every call is made on a thread of its own and waited for so long and no longer: a driver that hangs
costs a window its device figures, not the trial.
"""

from __future__ import annotations

import importlib
import logging
import statistics
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from autotune.measurement import MachineState, ThrottleReason

_logger = logging.getLogger(__name__)

SAMPLE_S = 0.5
"""Seconds between samples. Each takes the interpreter's lock for two or three calls. A thread that
did the like beside a loop of pure Python, which never gives the lock away by itself, took 0.2 to
0.6 ms a time from it (2 virtual cores, 31 times a second): 0.04 to 0.12 % at this rate for a loop
that does nothing but hold the lock, and less for one that launches kernels and waits."""

_CORE_SHARE = 0.01
"""Share of one core that sampling may use where calls are dear; the pauses are stretched then."""

PATIENCE_S = 5.0
"""Seconds after which a call is given up: the first one may wake up every device of a host."""

MIN_POWER_SAMPLES = 10
"""Samples of the power from which on their mean is multiplied into an energy, where a device (older
than Volta) has no energy counter."""

MIN_ENERGY_S = 1.0
"""Seconds of a window from which on its energy is told. The counter is said to be updated every
20 to 100 ms (Yang et al. 2023, "Part-time Power Measurements"), so that an end can be off by that
much: 10 % of a window as short as this one, and 1 % of one of 8 s."""

_REASONS = {  # nvml.h: nvmlClocksEventReasons
    0x04: ThrottleReason.SW_POWER_CAP,
    0x08: ThrottleReason.HW_SLOWDOWN,
    0x10: ThrottleReason.SYNC_BOOST,
    0x20: ThrottleReason.SW_THERMAL,
    0x40: ThrottleReason.HW_THERMAL,
    0x80: ThrottleReason.HW_POWER_BRAKE,
}
"""Bits that tell of clocks held down. The others (idle, set by the user, display) are settings."""

_UUID_KINDS = ("GPU", "MIG")
"""What NVML writes before a UUID: a whole device, or a slice of one."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DeviceName:
    """How NVML can be asked for a device: its own numbering ignores `CUDA_VISIBLE_DEVICES`.

    Attributes:
        uuid: As CUDA tells it, without a prefix; None where torch does not tell.
        pci: `domain:bus:device.function` in hexadecimal; None where torch does not tell.
    """

    uuid: str | None
    pci: str | None


def device_name(device: torch.device) -> DeviceName | None:
    """Return how to ask NVML for a device, or None for one that is not NVIDIA's."""
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    place = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    domain, bus, slot = place
    known = domain is not None and bus is not None and slot is not None
    return DeviceName(
        uuid=None if uuid is None else str(uuid),
        pci=f"{domain:08x}:{bus:02x}:{slot:02x}.0" if known else None,
    )


def open_gauges(name: DeviceName, module: str = "pynvml") -> DeviceGauges | None:
    """Return the gauges of a device, or None where NVML is absent or does not know it.

    Args:
        name: The device.
        module: Name of the module that calls NVML.
    """
    try:
        nvml = importlib.import_module(module)
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        _logger.info("no NVML: %s", error)
        return None
    asked: list[tuple[Callable[[str], Any], str]] = []
    if name.uuid is not None:
        asked += [(nvml.nvmlDeviceGetHandleByUUID, f"{kind}-{name.uuid}") for kind in _UUID_KINDS]
    if name.pci is not None:
        asked.append((nvml.nvmlDeviceGetHandleByPciBusId, name.pci))
    for find, word in asked:
        try:
            return DeviceGauges(nvml, find(word))
        except nvml.NVMLError as error:
            _logger.info("NVML does not know %s: %s", word, error)
    return None


class DeviceGauges:
    """The figures of one device; None for what driver, device or permissions do not give.

    Args:
        nvml: The module pynvml, initialised.
        handle: NVML's handle of the device.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        mig = self._ask("nvmlDeviceGetMigMode")
        # A device cut up by MIG has one power supply: its figures are of all slices together.
        self._whole = mig is None or mig[0] == 0
        self.has_energy = self.energy_j() is not None

    def energy_j(self) -> float | None:
        """Return the energy used since the driver was loaded, joules (Volta and later)."""
        if not self._whole:
            return None
        used_mj = self._number("nvmlDeviceGetTotalEnergyConsumption")
        return None if used_mj is None else used_mj / 1e3

    def power_w(self) -> float | None:
        """Return the power now, watts; the mean over the last second from Ampere on."""
        used_mw = self._number("nvmlDeviceGetPowerUsage") if self._whole else None
        return None if used_mw is None else used_mw / 1e3

    def temperature_c(self) -> float | None:
        """Return the temperature now, degrees Celsius."""
        return self._number("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)

    def sm_clock_mhz(self) -> float | None:
        """Return the clock of the multiprocessors now, MHz."""
        return self._number("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)

    def sm_clock_max_mhz(self) -> float | None:
        """Return the highest clock of the multiprocessors, MHz."""
        return self._number("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM)

    def throttle_reasons(self) -> set[ThrottleReason]:
        """Return what holds the clocks down now."""
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 know it by its older name only
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return {reason for bit, reason in _REASONS.items() if bits & bit}

    def other_processes(self, own: int, ours: Collection[int]) -> int | None:
        """Return how many processes beside ours have a context on the device.

        Args:
            own: This process, which has one. Where it is not listed, the numbers are those of
                another namespace (a container, nvidia-docker issue 179), and nothing is known.
            ours: Processes not to count.
        """
        running = self._ask("nvmlDeviceGetComputeRunningProcesses") if self._whole else None
        found = {each.pid for each in running or ()}
        return len(found - set(ours)) if own in found else None

    def other_share(self, own: int, ours: Collection[int], since_s: float) -> float | None:
        """Return the share of the time in which kernels of other processes ran.

        Args:
            own: This process. It is looked for here as well: this list and that of the processes
                can be of different namespaces (HAMi-core issue 112).
            ours: Processes not to count.
            since_s: Unix time of the beginning, seconds.
        """
        wanted = ("nvmlDeviceGetProcessUtilization", int(since_s * 1e6))
        samples = self._ask(*wanted) if self._whole else None
        by_process: dict[int, list[float]] = {}
        for sample in samples or ():
            by_process.setdefault(sample.pid, []).append(sample.smUtil)
        if own not in by_process:
            return None
        others = [used for pid, used in by_process.items() if pid not in ours]
        return min(1.0, sum(map(statistics.fmean, others)) / 100)

    def _number(self, name: str, *arguments: Any) -> float | None:
        value = self._ask(name, *arguments)
        return None if value is None else float(value)

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):  # not supported; an older pynvml
            return None


@dataclass(frozen=True)
class _Edge:
    """What is read at one end of a window, and when."""

    at_s: float
    energy_j: float | None
    temperature_c: float | None


class DeviceWatch:
    """Watches one device during windows.

    Args:
        find: Returns the gauges of the device, None where there are none.
        own: This process.
        ours: Returns the processes that are not to be counted as others.
        sample_s: Seconds between samples.
        patience_s: Seconds after which a call is given up; the device is not watched from then on.
    """

    def __init__(
        self,
        find: Callable[[], DeviceGauges | None],
        *,
        own: int,
        ours: Callable[[], Collection[int]],
        sample_s: float = SAMPLE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._own, self._ours = own, ours
        self._sample_s, self._patience_s = sample_s, patience_s
        self._hangs = False
        self._before: _Edge | None = None
        self._since_s = 0.0
        self._sampler: _Sampler | None = None
        self._gauges = self._aside(find)

    def begin(self) -> None:
        """Read the counters and start to sample."""
        if self._sampler is not None:
            self._sampler.stop()  # the window before had no end: it raised
        self._before = self._sampler = None
        gauges = self._gauges
        if gauges is None:
            return
        self._before = self._aside(lambda: _edge(gauges))
        self._since_s = time.time()
        if not self._hangs:
            self._sampler = _Sampler(gauges, self._sample_s)
            self._sampler.start()

    def end(self) -> MachineState:
        """Return the device's part of the machine's state since `begin`."""
        gauges, sampler, before = self._gauges, self._sampler, self._before
        if gauges is None or sampler is None or before is None:
            return MachineState()
        ended_s = time.perf_counter()
        sampler.stop()
        sampler.join(self._patience_s)
        self._hangs = self._hangs or sampler.is_alive()

        def seen() -> MachineState:
            after = _edge(gauges)
            if not sampler.clocks:  # the window was shorter than the pause before a sample
                sampler.sample()
            ours = self._ours()
            return replace(
                _state(gauges, before, after, ended_s - before.at_s, sampler),
                device_processes=gauges.other_processes(self._own, ours),
                device_other_share=gauges.other_share(self._own, ours, self._since_s),
            )

        return self._aside(seen) or MachineState()

    def _aside(self, work: Callable[[], T | None]) -> T | None:
        """Return what the work returns; None if it takes too long, or has done so before."""
        if self._hangs:
            return None
        found: list[T | None] = []
        thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
        thread.start()
        thread.join(self._patience_s)
        if thread.is_alive():
            self._hangs = True
            _logger.warning("NVML does not answer; the device is not watched")
        return found[0] if found else None


class _Sampler(threading.Thread):
    """Samples what passes: the clock, what holds it down, and the power where nothing counts it."""

    def __init__(self, gauges: DeviceGauges, pause_s: float) -> None:
        super().__init__(name="autotune-nvml", daemon=True)
        self._gauges = gauges
        self._pause_s = pause_s
        self._ended = threading.Event()
        self.clocks: list[float] = []
        self.powers: list[float] = []
        self.reasons: set[ThrottleReason] = set()

    def run(self) -> None:
        """Sample until told to stop."""
        pause_s = self._pause_s
        while not self._ended.wait(pause_s):
            started_s = time.thread_time()
            self.sample()
            used_s = time.thread_time() - started_s
            pause_s = max(self._pause_s, used_s / _CORE_SHARE)

    def stop(self) -> None:
        """Let the thread end."""
        self._ended.set()

    def sample(self) -> None:
        """Take one sample."""
        clock_mhz = self._gauges.sm_clock_mhz()
        if clock_mhz is not None:
            self.clocks.append(clock_mhz)
        self.reasons |= self._gauges.throttle_reasons()
        if not self._gauges.has_energy and (power_w := self._gauges.power_w()) is not None:
            self.powers.append(power_w)


def _edge(gauges: DeviceGauges) -> _Edge:
    return _Edge(time.perf_counter(), gauges.energy_j(), gauges.temperature_c())


def _state(
    gauges: DeviceGauges, before: _Edge, after: _Edge, elapsed_s: float, sampler: _Sampler
) -> MachineState:
    temperatures = [
        each.temperature_c for each in (before, after) if each.temperature_c is not None
    ]
    power_w = _counted_power_w(before, after)
    exact = power_w is not None or len(sampler.powers) >= MIN_POWER_SAMPLES
    if power_w is None and sampler.powers:
        power_w = statistics.fmean(sampler.powers)
    return MachineState(
        sm_clock_mhz=statistics.fmean(sampler.clocks) if sampler.clocks else None,
        sm_clock_max_mhz=gauges.sm_clock_max_mhz(),
        # Heat builds up over seconds: the highest is at an end, and costs no call in between.
        temperature_c=max(temperatures, default=None),
        power_w=power_w,
        energy_j=power_w * elapsed_s if power_w is not None and exact else None,
        throttle_reasons=tuple(reason for reason in ThrottleReason if reason in sampler.reasons),
    )


def _counted_power_w(before: _Edge, after: _Edge) -> float | None:
    """Return the mean power by the energy counter; None without one, or over too short a time."""
    if before.energy_j is None or after.energy_j is None:
        return None
    if after.at_s - before.at_s < MIN_ENERGY_S:
        return None
    return (after.energy_j - before.energy_j) / (after.at_s - before.at_s)
