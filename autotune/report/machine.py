"""What the machine was like while baseline and best were timed."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.measurement import MachineState, Measurement
from autotune.report import numbers
from autotune.result import StudyResult, TrialRecord


def machine_lines(result: StudyResult) -> tuple[str, ...]:
    """Return a sentence for the baseline's window and one for the best's, where it was watched."""
    shown = [("baseline", result.baseline)]
    if result.best.settings != result.baseline.settings:
        shown.append(("best", result.best))
    return tuple(line for label, trial in shown for line in _line(label, trial))


def disturbance(trial: TrialRecord) -> str:
    """Return `; disturbed: ...` for a trial whose window was disturbed, else nothing."""
    found = () if trial.measurement is None else trial.measurement.window.disturbances
    return f"; disturbed: {'; '.join(found)}" if found else ""


def _line(label: str, trial: TrialRecord) -> Iterator[str]:
    measured = trial.measurement
    if measured is None or measured.window.machine is None:
        return
    if words := ", ".join(_words(measured, measured.window.machine)):
        yield f"{label}: {words}"


def _words(measured: Measurement, state: MachineState) -> Iterator[str]:
    if state.sm_clock_mhz is not None:
        highest = state.sm_clock_max_mhz
        limit = "" if highest is None else f" of {highest:.0f}"
        yield f"device clock {state.sm_clock_mhz:.0f}{limit} MHz"
    if state.temperature_c is not None:
        yield f"{state.temperature_c:.0f} °C"
    if state.power_w is not None:
        yield f"{state.power_w:.0f} W"
    if measured.samples_per_joule is not None:
        yield f"{numbers.plain(measured.samples_per_joule)} samples/joule (the device alone)"
    if state.device_processes:
        yield f"other processes on the device: {state.device_processes}"
    if state.other_cpu_cores is not None:
        yield f"other processes used {state.other_cpu_cores:.1f} of {state.affinity_cores} cores"
    if state.load_average is not None:
        yield f"load average {state.load_average:.1f}"
    yield from state.limits
    for text in state.disturbances:
        yield f"disturbed: {text}"
