"""What holds a job back, in one sentence, and where its step goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.diagnosis import Bottleneck, Diagnosis, Fix, Part, diagnose
from autotune.measurement import Measurement, Phase
from autotune.report import numbers
from autotune.report.table import table
from autotune.settings import CompileMode
from autotune.statistics import Estimate

_PARTS = {
    Part.WAITING: "waiting for data",
    Part.COPYING: "copying the batch",
    Part.SLOWED: "slowed by loading beside it",
    Part.IDLE: "idle between kernels",
    Part.COMPUTING: "computing, and what is not known apart",
}


def bottleneck(measurement: Measurement) -> str:
    """Return one sentence: what holds the job back, and what is to be gained."""
    found = diagnose(measurement)
    return "; ".join((_lead(measurement, found), *_further(measurement, found)))


def share_table(measured: Mapping[str, Measurement]) -> str:
    """Return the parts of a step as shares of it, a column for each labelled measurement."""
    shares = [diagnose(each).shares for each in measured.values()]
    rows = [
        [name, *(numbers.share(known.get(part)) for known in shares)]
        for part, name in _PARTS.items()
        if any(part in known for known in shares)
    ]
    return table(["share of a step", *measured], rows, right=range(1, len(shares) + 1))


def _lead(measurement: Measurement, found: Diagnosis) -> str:
    waited = _waiting(measurement)
    if found.synchronizing:
        return f"launch-bound or synchronising: {_queueing(measurement)}; a trace tells them apart"
    if found.bottleneck is Bottleneck.SLOWED:
        if found.gain(Fix.UNDISTURBED) is None:
            return f"{found.bottleneck}, though {waited}"
        return f"{found.bottleneck}: {waited}, while {_ceilings(measurement)}"
    if found.bottleneck is Bottleneck.DEVICE_BOUND:
        return f"{found.bottleneck}: {waited}; {_largest_phase(measurement)}"
    if found.causes == (Part.WAITING,):
        partly = "partly " if found.bottleneck is Bottleneck.MIXED else ""
        return f"{partly}input-bound: {waited}"
    return f"{found.bottleneck}: {', '.join(_causes(measurement, found))}"


def _causes(measurement: Measurement, found: Diagnosis) -> Iterator[str]:
    for cause in found.causes:
        share = numbers.share(found.shares[cause])
        if cause is Part.WAITING:
            yield _waiting(measurement)
        elif cause is Part.COPYING:
            yield f"{_copying(measurement)} took {share} of the time"
        else:
            yield f"the device idled {share} of the time between kernels{_why_idle(measurement)}"


def _further(measurement: Measurement, found: Diagnosis) -> Iterator[str]:
    """Return what is to be gained, cause by cause."""
    undisturbed = found.gain(Fix.UNDISTURBED)
    if undisturbed is not None:
        yield f"if neither slowed the other: up to {numbers.ratio(undisturbed.times)}"
    data, ceiling = found.gain(Fix.DATA_FREE), measurement.device_ceiling
    if data is not None and ceiling is not None and found.bottleneck is not Bottleneck.DEVICE_BOUND:
        rate = numbers.rate(Estimate(ceiling.value))
        yield f"if data were free: {rate}, {numbers.ratio(data.times)}"
    if Part.WAITING in found.causes and measurement.loader_ceiling is not None:
        yield f"the loader alone gives {numbers.rate(measurement.loader_ceiling)}"
    copies = found.gain(Fix.COPIES_HIDDEN)
    if copies is not None:
        yield f"if {_copying(measurement)} were hidden: up to {numbers.ratio(copies.times)}"
    launches = found.gain(Fix.LAUNCHES_FREE)
    if launches is not None:
        graphs = measurement.settings.compile is CompileMode.REDUCE_OVERHEAD
        how = "" if graphs else " (CUDA graphs: compile=reduce-overhead)"
        yield f"if launches were free{how}: up to {numbers.ratio(launches.times)}"


def _waiting(measurement: Measurement) -> str:
    share = numbers.share(measurement.window.stall_share)
    if measurement.device.kind != "cpu":
        return f"the device waited {share} of the time for data"
    # On a CPU, training and loading use the same processor: without workers nothing waits.
    if measurement.settings.num_workers == 0:
        return f"{share} of the time went into loading"
    return f"training waited {share} of the time for data"


def _copying(measurement: Measurement) -> str:
    if measurement.device.kind == "cpu":
        return "laying out the batch anew"
    activity = measurement.activity
    pinned = None if activity is None else activity.copy_pinned
    if pinned is None:
        return "copies to the device"
    return f"copies to the device from {'pinned' if pinned else 'pageable'} memory"


def _why_idle(measurement: Measurement) -> str:
    activity = measurement.activity
    if activity is None:
        return ""
    kernels = numbers.count(round(activity.kernels_per_step))
    queued = "" if measurement.launch_s is None else f"; {_queueing(measurement)}"
    waits = activity.synchronizations_per_step
    waited = "" if waits < 1 else f"; the host waited for the device {waits:.0f} x in each"
    return f" ({kernels} in a step{queued}{waited})"


def _queueing(measurement: Measurement) -> str:
    seconds = measurement.launch_s
    queued_ms = numbers.milliseconds(None if seconds is None else 1e3 * seconds)
    ceiling = measurement.device_ceiling
    batch = measurement.settings.batch_size
    resident_ms = numbers.milliseconds(None if ceiling is None else 1e3 * batch / ceiling.value)
    return f"queueing one takes the host {queued_ms} ms, where a step takes {resident_ms} ms"


def _ceilings(measurement: Measurement) -> str:
    device, loader = measurement.device_ceiling, measurement.loader_ceiling
    return f"alone, the device does {numbers.rate(device)} and the loader {numbers.rate(loader)}"


def _largest_phase(measurement: Measurement) -> str:
    window = measurement.window
    phase = max(
        (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER), key=lambda phase: window.phase_ms(phase)
    )
    total = sum(map(window.phase_ms, Phase))
    return f"{phase} took {numbers.share(window.phase_ms(phase) / total)}"
