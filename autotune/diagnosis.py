"""What holds a job back, told from what a probe measured. Only the decision: words are elsewhere.

A step is split into parts that follow each other on the device's clock:

| part | how it is known |
| --- | --- |
| waiting for data | stall: the device had nothing to do until the batch arrived |
| copying | the rest of the data phase, on the device's clock |
| slowed | what the other phases take beyond a step whose batch is resident (device ceiling) |
| idle | what a resident step takes beyond the work of its kernels (trace) |
| computing | the rest |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autotune.measurement import Measurement, Phase
from autotune.statistics import SAME_WITHIN, Estimate

PARTLY_FROM = 0.05
BOUND_FROM = 0.20
"""Shares of the step from which on a part holds the job back in part, and holds it back.

For waiting for data, the TensorFlow profiler draws its lines at the same places (5 % moderately,
20 % highly input-bound) and the PyTorch profiler's TensorBoard plugin advises more loading
processes above 5 %. The other parts are held to the same lines: without one of 20 %, the job would
be 1.25 x as fast."""

DISTURBED_FROM = 1.10
"""Gain over the measured rate from which the ceilings show that training and loading slow each
other although each alone is faster: workers and the launching thread share cores. Below it, the
windows differ by no more than noise and the cost of the copies would explain."""

QUEUEING_FROM = 0.90
"""Share of a resident step that queueing it takes the host, from which on the host may set the
pace. Where it does, the two are equal; a tenth is left to the noise of two measurements. Chosen,
not taken from elsewhere."""


class Part(StrEnum):
    """A part of a step."""

    WAITING = "waiting"
    """The device waited for data."""
    COPYING = "copying"
    """The batch was copied to the device, or laid out anew."""
    SLOWED = "slowed"
    """Training took longer than with a resident batch, beyond waiting and copying."""
    IDLE = "idle"
    """The device idled between kernels, while the host queued them or waited for the device."""
    COMPUTING = "computing"
    """The rest: kernels, as far as they are known apart."""


class Bottleneck(StrEnum):
    """What holds a job back."""

    INPUT_BOUND = "input-bound"
    TRANSFER_BOUND = "transfer-bound"
    LAUNCH_BOUND = "launch-bound"
    SLOWED = "slowed by loading"
    """Neither side alone is as slow: they share cores."""
    DEVICE_BOUND = "device-bound"
    """Compute: on a CPU, too."""
    MIXED = "mixed"


class Fix(StrEnum):
    """What a gain supposes."""

    DATA_FREE = "data_free"
    """The batch lies on the device: no loading, no copies, no workers."""
    COPIES_HIDDEN = "copies_hidden"
    """Copies run beside computing."""
    LAUNCHES_FREE = "launches_free"
    """Kernels follow each other without a gap."""
    UNDISTURBED = "undisturbed"
    """Training and loading do not slow each other: the slower of them sets the pace."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What would be gained if one cause were gone.

    Attributes:
        fix: What is supposed.
        times: Throughput then, over that measured.
        bound: It is at most that: another limit may come first.
    """

    fix: Fix
    times: Estimate
    bound: bool


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What holds a job back.

    Attributes:
        bottleneck: In one word.
        causes: Parts of the step behind it, the largest first; empty where it is the computing.
        shares: Share of the step of each part that is known, 0 to 1; they add up to 1. A part that
            cannot be told apart is missing, and is in `COMPUTING`.
        gains: What would be gained by removing one cause, where it is sure to be a gain.
        synchronizing: The job may wait for the device in every step instead of being launch-bound:
            without a trace, the two look the same.
    """

    bottleneck: Bottleneck
    causes: tuple[Part, ...]
    shares: Mapping[Part, float]
    gains: tuple[Gain, ...]
    synchronizing: bool = False

    def gain(self, fix: Fix) -> Gain | None:
        """Return what would be gained, or None where that is not known to be anything."""
        return next((gain for gain in self.gains if gain.fix is fix), None)


def diagnose(measurement: Measurement) -> Diagnosis:
    """Return what holds a measured job back."""
    shares = _shares(measurement)
    gains = _gains(measurement, shares)
    bottleneck, causes = _decide(measurement, shares, gains)
    queued = _queueing_share(measurement)
    unsure = bottleneck is Bottleneck.DEVICE_BOUND and Part.IDLE not in shares
    if unsure and queued is not None and queued >= QUEUEING_FROM:
        return Diagnosis(
            bottleneck=Bottleneck.LAUNCH_BOUND,
            causes=(),
            shares=shares,
            gains=tuple(gains.values()),
            synchronizing=True,
        )
    return Diagnosis(
        bottleneck=bottleneck, causes=causes, shares=shares, gains=tuple(gains.values())
    )


def _shares(measurement: Measurement) -> dict[Part, float]:
    """Return the parts of the step as shares of 1, each cut to what those before it leave."""
    window = measurement.window
    phases_ms = {phase: window.phase_ms(phase) for phase in Phase}
    step_ms = sum(phases_ms.values())
    left = 1.0
    shares = {Part.WAITING: min(left, window.stall_ms / step_ms)}
    left -= shares[Part.WAITING]
    shares[Part.COPYING] = min(left, max(0.0, phases_ms[Phase.DATA] - window.stall_ms) / step_ms)
    left -= shares[Part.COPYING]
    resident_ms = _resident_step_ms(measurement)
    if resident_ms is not None and _loads_beside_training(measurement):
        shares[Part.SLOWED] = max(0.0, left - resident_ms / step_ms)
        left -= shares[Part.SLOWED]
    if resident_ms is not None and measurement.activity is not None:
        idle_ms = max(0.0, resident_ms - measurement.activity.kernel_ms)
        shares[Part.IDLE] = min(left, idle_ms / step_ms)
        left -= shares[Part.IDLE]
    shares[Part.COMPUTING] = left
    return shares


def _resident_step_ms(measurement: Measurement) -> float | None:
    """Return the milliseconds of a step of the same size with a resident batch."""
    if measurement.device_ceiling is None:
        return None
    window = measurement.window
    return 1e3 * window.samples / window.steps / measurement.device_ceiling.value


def _loads_beside_training(measurement: Measurement) -> bool:
    # On a CPU without workers, loading takes turns with training: all that it costs is the wait.
    return measurement.device.kind != "cpu" or measurement.settings.num_workers > 0


def _queueing_share(measurement: Measurement) -> float | None:
    resident_ms = _resident_step_ms(measurement)
    if resident_ms is None or measurement.launch_s is None:
        return None
    return 1e3 * measurement.launch_s / resident_ms


def _decide(
    measurement: Measurement, shares: Mapping[Part, float], gains: Mapping[Fix, Gain]
) -> tuple[Bottleneck, tuple[Part, ...]]:
    names = {
        Part.WAITING: Bottleneck.INPUT_BOUND,
        Part.COPYING: Bottleneck.TRANSFER_BOUND,
        Part.IDLE: Bottleneck.LAUNCH_BOUND,
    }
    known = sorted((part for part in names if part in shares), key=lambda p: -shares[p])
    large = tuple(part for part in known if shares[part] >= BOUND_FROM)
    some = tuple(part for part in known if shares[part] >= PARTLY_FROM)
    if Fix.UNDISTURBED in gains:
        return Bottleneck.SLOWED, (Part.SLOWED,)
    if _pipeline_waits(measurement, shares) or large == (Part.WAITING,):
        return Bottleneck.INPUT_BOUND, (Part.WAITING,)
    if large:
        return (names[large[0]] if len(large) == 1 else Bottleneck.MIXED), large
    if shares[Part.WAITING] < PARTLY_FROM and _slowed(gains, shares):
        return Bottleneck.SLOWED, (Part.SLOWED,)
    if Part.WAITING in some or sum(shares[part] for part in some) >= BOUND_FROM:
        return Bottleneck.MIXED, some
    return Bottleneck.DEVICE_BOUND, ()


def _slowed(gains: Mapping[Fix, Gain], shares: Mapping[Part, float]) -> bool:
    free = gains.get(Fix.DATA_FREE)
    # Of the gain, the share that is neither waiting nor copying.
    slowed = 1 / (1 - shares.get(Part.SLOWED, 0.0))
    return free is not None and slowed >= DISTURBED_FROM


def _gains(measurement: Measurement, shares: Mapping[Part, float]) -> dict[Fix, Gain]:
    rate, device = measurement.window.throughput, measurement.device_ceiling
    found: list[Gain] = []
    if device is not None and _surely_above(device, rate):
        found.append(Gain(fix=Fix.DATA_FREE, times=_quotient(device, rate), bound=False))
    undisturbed = _undisturbed(measurement, shares)
    if undisturbed is not None:
        found.append(Gain(fix=Fix.UNDISTURBED, times=undisturbed, bound=True))
    limit = _loader_limit(measurement, shares)
    for fix, part in ((Fix.COPIES_HIDDEN, Part.COPYING), (Fix.LAUNCHES_FREE, Part.IDLE)):
        share = shares.get(part, 0.0)
        if PARTLY_FROM <= share < 1:
            times = min(limit, 1 / (1 - share))
            if times > 1 + SAME_WITHIN:
                found.append(Gain(fix=fix, times=Estimate(times), bound=True))
    return {gain.fix: gain for gain in found}


def _loader_limit(measurement: Measurement, shares: Mapping[Part, float]) -> float:
    """Return what the loader allows at most as a multiple of the rate."""
    if measurement.loader_ceiling is not None:
        return max(1.0, measurement.loader_ceiling.value / measurement.window.samples_per_s)
    return 1.0 if _pipeline_waits(measurement, shares) else math.inf


def _pipeline_waits(measurement: Measurement, shares: Mapping[Part, float]) -> bool:
    # While workers cannot keep up, all else that became faster would only wait longer.
    return measurement.settings.num_workers > 0 and shares[Part.WAITING] >= BOUND_FROM


def _undisturbed(measurement: Measurement, shares: Mapping[Part, float]) -> Estimate | None:
    """Return the slower of both sides alone over the rate, where it is surely well above 1.

    The device's side is a resident step and the copies, which the device ceiling leaves out.
    """
    rate, device, loader = (
        measurement.window.throughput,
        measurement.device_ceiling,
        measurement.loader_ceiling,
    )
    if device is None or loader is None or measurement.settings.num_workers == 0:
        return None
    copying_s = shares[Part.COPYING] / rate.value  # seconds per sample
    device = _with_copies(device, copying_s)
    slower = min(device, loader, key=lambda side: side.value)
    if not (_surely_above(device, rate) and _surely_above(loader, rate)):
        return None
    return _quotient(slower, rate) if slower.value >= DISTURBED_FROM * rate.value else None


def _with_copies(device: Estimate, copying_s: float) -> Estimate:
    def slower(rate: float | None) -> float | None:
        return None if rate is None else 1 / (1 / rate + copying_s)

    value = 1 / (1 / device.value + copying_s)
    return Estimate(value, slower(device.low), slower(device.high), device.level)


def _surely_above(ceiling: Estimate, rate: Estimate) -> bool:
    """Return whether the ceiling is higher beyond the noise of both."""
    at_least = ceiling.value if ceiling.low is None else ceiling.low
    at_most = rate.value if rate.high is None else rate.high
    return at_least > at_most


def _quotient(above: Estimate, below: Estimate) -> Estimate:
    """Return the ratio of two independent rates with its interval.

    On the logarithm's scale the half-widths of a difference add up as squares do.
    """
    value = above.value / below.value
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Estimate(value)
    down = math.hypot(math.log(above.value / above.low), math.log(below.high / below.value))
    up = math.hypot(math.log(above.high / above.value), math.log(below.value / below.low))
    return Estimate(value, value * math.exp(-down), value * math.exp(up), above.level)
