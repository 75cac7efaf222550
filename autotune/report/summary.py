"""The outcome of a study: the headline, and the phases of a step before and after."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.measurement import Measurement, Phase
from autotune.report import numbers
from autotune.result import Arm, Confirmation, Role, StudyEnd, StudyResult, TrialRecord
from autotune.settings import Settings
from autotune.statistics import SAME_WITHIN, Estimate, Verdict

KEEP = "Keep your settings"


@dataclass(frozen=True, kw_only=True)
class PhaseRow:
    """How one setting spends a step. A figure that was not measured is None.

    Attributes:
        label: `baseline`, `expert guess` or `best`.
        settings: What ran.
        throughput: Samples/s: the confirmation's, or the search's where there was none.
        step_ms: Mean milliseconds of a step of `settings.batch_size` samples.
        data_ms: Mean milliseconds of the data phase in a step; the other phases likewise.
        forward_ms: As above.
        backward_ms: As above.
        optimizer_ms: As above.
        stall_share: Share of the time in which the device waited for data, 0 to 1.
        host_wait_ms: Mean milliseconds per step that `next(loader)` took on the host.
        device_memory_bytes: Peak memory held on the device.
        host_memory_bytes: Peak resident memory of the process and its workers.
    """

    label: str
    settings: Settings
    throughput: Estimate | None = None
    step_ms: float | None = None
    data_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None
    stall_share: float | None = None
    host_wait_ms: float | None = None
    device_memory_bytes: int | None = None
    host_memory_bytes: int | None = None


def headline(result: StudyResult) -> str:
    """Return the outcome in one or two sentences."""
    if result.confirmation is not None:
        return _confirmed(result, result.confirmation)
    if result.best.settings == result.baseline.settings:
        return _unbeaten(result)
    return _unconfirmed(result)


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


def _confirmed(result: StudyResult, confirmation: Confirmation) -> str:
    times = numbers.ratio(confirmation.versus_baseline.ratio)
    rounds = f"over {confirmation.rounds} interleaved rounds"
    if result.verdict is Verdict.FASTER:
        return (
            f"Faster: {_arm_rate(confirmation, Arm.BEST)} against "
            f"{_arm_rate(confirmation, Arm.BASELINE)} with your settings, {times}, {rounds}."
            f"{_beside_expert(result)}"
        )
    found = {
        Verdict.SAME: f"the best found is as fast, within {numbers.share(SAME_WITHIN)}",
        Verdict.SLOWER: "the best of the search was slower when measured again",
    }.get(result.verdict, "the best found is not clearly faster")
    return f"{KEEP}: {found} ({times} your samples per second, {rounds})."


def _beside_expert(result: StudyResult) -> str:
    if result.expert is None or result.confirmation is None:
        return ""
    if result.expert.settings == result.best.settings:
        return " The expert guess is the best found."
    if result.confirmation.versus_expert is None:
        return ""
    return f" Against the expert guess: {numbers.ratio(result.confirmation.versus_expert.ratio)}."


def _unbeaten(result: StudyResult) -> str:
    searched = sum(trial.role in (Role.EXPERT, Role.SEARCH) for trial in result.trials)
    interrupted = result.ended is StudyEnd.INTERRUPTED
    until = " before the study was interrupted" if interrupted else ""
    if not searched:
        return f"{KEEP}: no other was tried{until}. They give {_search_rate(result.baseline)}."
    return (
        f"{KEEP}: of {searched} others tried{until}, none was faster than yours, "
        f"{_search_rate(result.baseline)}."
    )


def _unconfirmed(result: StudyResult) -> str:
    interrupted = result.ended is StudyEnd.INTERRUPTED
    why = "the study was interrupted" if interrupted else "the study ended"
    best, baseline = result.best.score, result.baseline.score
    times = Estimate(best / baseline) if best and baseline else None
    return (
        f"Not confirmed: {why} before baseline and best were measured again. In the search, "
        f"the best gave {_search_rate(result.best)} against {_search_rate(result.baseline)} "
        f"with your settings, {numbers.ratio(times)}; take it as a hint."
    )


def _arm_rate(confirmation: Confirmation, arm: Arm) -> str:
    found = confirmation.arm(arm)
    return numbers.rate(found.throughput if found is not None else None, " samples/s")


def _search_rate(trial: TrialRecord) -> str:
    return numbers.rate(_search_throughput(trial), " samples/s")


def _search_throughput(trial: TrialRecord) -> Estimate | None:
    return None if trial.measurement is None else trial.measurement.window.throughput


def _row(label: str, arm: Arm, trial: TrialRecord, result: StudyResult) -> PhaseRow:
    confirmed = result.confirmation.arm(arm) if result.confirmation is not None else None
    throughput = confirmed.throughput if confirmed is not None else _search_throughput(trial)
    measured = trial.measurement
    if measured is None:
        return PhaseRow(label=label, settings=trial.settings, throughput=throughput)
    return _measured_row(label, throughput, measured)


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
    )
