"""The phases of a step before and after, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.measurement import Measurement, Phase
from autotune.report import numbers
from autotune.report.table import table
from autotune.result import Arm, StudyResult, TrialRecord
from autotune.settings import Settings
from autotune.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class PhaseRow:
    """How one setting spends a step. A figure that was not measured is None.

    Attributes:
        label: `baseline`, `expert guess` or `best`.
        settings: What ran.
        throughput: Samples/s: the confirmation's, or the search's where there was none.
        score: The same of the score, where that is not the throughput.
        step_ms: Mean milliseconds of a step of `settings.batch_size` samples.
        data_ms: Mean milliseconds of the data phase in a step; the other phases likewise.
        forward_ms: As above.
        backward_ms: As above.
        optimizer_ms: As above.
        stall_share: Share of the time in which the device waited for data, 0 to 1.
        host_wait_ms: Mean milliseconds per step that `next(loader)` took on the host.
        device_memory_bytes: Peak memory held on the device.
        host_memory_bytes: Peak resident memory of the process and its workers.
        samples_per_joule: Samples trained per joule that the device used.
    """

    label: str
    settings: Settings
    throughput: Estimate | None = None
    score: Estimate | None = None
    step_ms: float | None = None
    data_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None
    stall_share: float | None = None
    host_wait_ms: float | None = None
    device_memory_bytes: int | None = None
    host_memory_bytes: int | None = None
    samples_per_joule: float | None = None


def phase_rows(result: StudyResult) -> tuple[PhaseRow, ...]:
    """Return the baseline, the expert guess if it ran, and the best unless it is one of them."""
    rows = [_row("baseline", Arm.BASELINE, result.baseline, result)]
    best_label = "best"
    if result.expert is not None:
        if result.expert.settings == result.best.settings:
            best_label = "best (expert guess)"
        else:
            rows.append(_row("expert guess", Arm.EXPERT, result.expert, result))
    if result.best.settings != result.baseline.settings:
        rows.append(_row(best_label, Arm.BEST, result.best, result))
    return tuple(rows)


def phase_table(result: StudyResult) -> str:
    """Return the rows of `phase_rows` as columns of a table. What nobody has is left out."""
    rows = phase_rows(result)
    # On a CPU, loading in the training process counts as data too, and is no wait.
    stall = "time spent on data" if result.facts.device.kind == "cpu" else "waited for data"
    lines: tuple[tuple[str, Callable[[PhaseRow], str]], ...] = (
        ("samples/s", lambda row: numbers.rate(row.throughput).partition(" ")[0]),
        ("95 % interval", lambda row: numbers.interval(row.throughput)),
        (result.objective.unit, lambda row: numbers.rate(row.score, "")),
        ("batch size", lambda row: numbers.count(row.settings.batch_size)),
        ("step, ms", lambda row: numbers.milliseconds(row.step_ms)),
        ("  data, ms", lambda row: numbers.milliseconds(row.data_ms)),
        ("  forward, ms", lambda row: numbers.milliseconds(row.forward_ms)),
        ("  backward, ms", lambda row: numbers.milliseconds(row.backward_ms)),
        ("  optimizer, ms", lambda row: numbers.milliseconds(row.optimizer_ms)),
        (stall, lambda row: numbers.share(row.stall_share)),
        ("host wait, ms", lambda row: numbers.milliseconds(row.host_wait_ms)),
        ("device memory, peak", lambda row: numbers.gibibytes(row.device_memory_bytes)),
        ("host memory, peak", lambda row: numbers.gibibytes(row.host_memory_bytes)),
        ("samples/joule (device)", lambda row: numbers.plain(row.samples_per_joule)),
    )
    cells = [[name, *(show(row) for row in rows)] for name, show in lines]
    known = [line for line in cells if any(cell != numbers.MISSING for cell in line[1:])]
    return table(["", *(row.label for row in rows)], known, right=range(1, len(rows) + 1))


def _search_throughput(trial: TrialRecord) -> Estimate | None:
    return None if trial.measurement is None else trial.measurement.window.throughput


def _search_score(trial: TrialRecord) -> Estimate | None:
    return None if trial.score is None else Estimate(trial.score)


def _row(label: str, arm: Arm, trial: TrialRecord, result: StudyResult) -> PhaseRow:
    confirmed = result.confirmation.arm(arm) if result.confirmation is not None else None
    throughput = confirmed.throughput if confirmed is not None else _search_throughput(trial)
    score = confirmed.score if confirmed is not None else _search_score(trial)
    measured = trial.measurement
    row = (
        PhaseRow(label=label, settings=trial.settings, throughput=throughput)
        if measured is None
        else _measured_row(label, throughput, measured)
    )
    return row if result.objective.is_plain else replace(row, score=score)


def _measured_row(label: str, throughput: Estimate | None, measured: Measurement) -> PhaseRow:
    window, memory = measured.window, measured.memory
    return PhaseRow(
        label=label,
        settings=measured.settings,
        throughput=throughput,
        step_ms=window.step_ms,
        data_ms=window.phase_ms(Phase.DATA),
        forward_ms=window.phase_ms(Phase.FORWARD),
        backward_ms=window.phase_ms(Phase.BACKWARD),
        optimizer_ms=window.phase_ms(Phase.OPTIMIZER),
        stall_share=window.stall_share,
        host_wait_ms=window.host_wait_ms,
        device_memory_bytes=memory.peak_reserved_bytes,
        host_memory_bytes=memory.host_peak_bytes,
        samples_per_joule=measured.samples_per_joule,
    )
