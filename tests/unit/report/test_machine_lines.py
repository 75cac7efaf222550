"""The machine on the summary page."""

from __future__ import annotations

from dataclasses import replace

from factories import make_measurement, make_result, make_trial

from autotune.measurement import MachineState, ThrottleReason
from autotune.report import markdown
from autotune.report.machine import machine_lines
from autotune.result import Role, StudyResult

STATE = MachineState(
    sm_clock_mhz=1410.2,
    sm_clock_max_mhz=1980.0,
    temperature_c=64.0,
    power_w=683.4,
    energy_j=320.0,
    throttle_reasons=(ThrottleReason.SW_POWER_CAP,),
    load_average=3.1,
    affinity_cores=2,
    usable_cores=2,
    other_cpu_cores=1.7,
)


def watched() -> StudyResult:
    measured = make_measurement()
    window = replace(measured.window, machine=STATE)
    baseline = make_trial(0, Role.BASELINE, replace(measured, window=window))
    result = make_result()
    return replace(result, baseline=baseline, trials=(baseline, *result.trials[1:]))


def test_a_line_for_each_window_that_was_watched() -> None:
    (line,) = machine_lines(watched())
    assert line == (
        "baseline: device clock 1410 of 1980 MHz, 64 °C, 683 W, 4.00 samples/joule (the device "
        "alone), other processes used 1.7 of 2 cores, load average 3.1, the power limit held the "
        "device's clocks to 1410 of 1980 MHz, disturbed: other processes used 1.7 of 2 cores"
    )
    assert machine_lines(make_result()) == ()


def test_the_page_shows_energy_and_marks_disturbed_trials() -> None:
    page = markdown(watched(), view=None)
    assert "## Machine meanwhile" in page
    (energy,) = (line for line in page.splitlines() if line.startswith("| samples/joule"))
    assert "4.00" in energy
    (row,) = (line for line in page.splitlines() if line.startswith("| 000 "))
    assert "complete; disturbed: other processes used 1.7 of 2 cores" in row
    unwatched = markdown(make_result(), view=None)
    assert "samples/joule" not in unwatched
    assert "disturbed" not in unwatched
    assert "Machine meanwhile" not in unwatched
