"""What holds a job back, in one sentence."""

from __future__ import annotations

from autotune.measurement import Measurement, Phase
from autotune.report import numbers
from autotune.statistics import Estimate

NOT_INPUT_BOUND_BELOW = 0.05
INPUT_BOUND_FROM = 0.20
"""Shares of the time spent waiting for data. Below the first the job is not input-bound, from the
second it is, in between it is in part. The TensorFlow profiler draws its lines at the same places
(5 % moderately, 20 % highly input-bound) and the PyTorch profiler's TensorBoard plugin advises
more loading processes above 5 %."""

DISTURBED_FROM = 1.10
"""Gain over the measured rate from which a resident batch shows that loading slows the device's
side although nothing waits: workers and the launching thread share cores. Below it, the two windows
differ by no more than noise and the cost of the copies would explain."""


def bottleneck(measurement: Measurement) -> str:
    """Return one sentence: input-bound, device-bound or in between, and what is to be gained."""
    window = measurement.window
    waited = _waiting(measurement)
    free = _if_data_were_free(measurement)
    if window.stall_share >= INPUT_BOUND_FROM:
        return f"input-bound: {waited}{free}"
    if window.stall_share >= NOT_INPUT_BOUND_BELOW:
        return f"partly input-bound: {waited}{free}"
    gain = _gain_if_free(measurement)
    if gain is not None and gain >= DISTURBED_FROM and _loads_beside_training(measurement):
        return f"slowed by loading, though {waited}{free}"
    return f"device-bound: {waited}; {_largest_phase(measurement)}"


def _loads_beside_training(measurement: Measurement) -> bool:
    # On a CPU without workers, loading takes turns with training: all that it costs is the wait.
    return measurement.device.kind != "cpu" or measurement.settings.num_workers > 0


def _waiting(measurement: Measurement) -> str:
    share = numbers.share(measurement.window.stall_share)
    if measurement.device.kind != "cpu":
        return f"the device waited {share} of the time for data"
    # On a CPU, training and loading use the same processor: without workers nothing waits.
    if measurement.settings.num_workers == 0:
        return f"{share} of the time went into loading"
    return f"training waited {share} of the time for data"


def _if_data_were_free(measurement: Measurement) -> str:
    gain = _gain_if_free(measurement)
    if gain is None:
        return ""
    free = Estimate(gain * measurement.window.samples_per_s)
    return f"; if data were free: {numbers.rate(free)} ({numbers.ratio(Estimate(gain))})"


def _gain_if_free(measurement: Measurement) -> float | None:
    """Return the device ceiling over the rate; None unless it is higher beyond both's noise."""
    ceiling, rate = measurement.device_ceiling, measurement.window.throughput
    if ceiling is None:
        return None
    at_least = ceiling.value if ceiling.low is None else ceiling.low
    at_most = rate.value if rate.high is None else rate.high
    return ceiling.value / rate.value if at_least > at_most else None


def _largest_phase(measurement: Measurement) -> str:
    window = measurement.window
    phase = max(
        (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER), key=lambda phase: window.phase_ms(phase)
    )
    total = sum(map(window.phase_ms, Phase))
    return f"{phase} took {numbers.share(window.phase_ms(phase) / total)}"
