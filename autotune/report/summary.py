"""The outcome of a study in one or two sentences."""

from __future__ import annotations

from autotune.report import numbers
from autotune.result import Arm, Confirmation, Role, StudyEnd, StudyResult, TrialRecord
from autotune.statistics import SAME_WITHIN, Estimate, Verdict

KEEP = "Keep your settings"


def headline(result: StudyResult) -> str:
    """Return the outcome in one or two sentences."""
    if result.confirmation is not None:
        return _confirmed(result, result.confirmation)
    if result.best.settings == result.baseline.settings:
        return _unbeaten(result)
    return _unconfirmed(result)


def _confirmed(result: StudyResult, confirmation: Confirmation) -> str:
    times = numbers.ratio(confirmation.versus_baseline.ratio)
    number = confirmation.rounds
    rounds = f"over {number} interleaved rounds" if number > 1 else "in one round, too few to tell"
    if result.verdict is Verdict.FASTER:
        return (
            f"Faster: {times} your samples per second: {_arm_rate(confirmation, Arm.BEST)} against "
            f"{_arm_rate(confirmation, Arm.BASELINE)}, {rounds}.{_beside_expert(result)}"
        )
    found = {
        Verdict.SAME: f"the best found is as fast, within {numbers.share(SAME_WITHIN)}",
        Verdict.SLOWER: "the best of the search was slower when measured again",
    }.get(result.verdict, "the best found is not clearly faster")
    return f"{KEEP}: {found}: {times} your samples per second, {rounds}."


def _beside_expert(result: StudyResult) -> str:
    if result.expert is None or result.confirmation is None:
        return ""
    if result.expert.settings == result.best.settings:
        return " The expert guess is the best found."
    if result.confirmation.versus_expert is None:
        return ""
    return f" Against the expert guess: {numbers.ratio(result.confirmation.versus_expert.ratio)}."


def _unbeaten(result: StudyResult) -> str:
    others = [trial for trial in result.trials if trial.role in (Role.EXPERT, Role.SEARCH)]
    interrupted = result.ended is StudyEnd.INTERRUPTED
    until = " before the study was interrupted" if interrupted else ""
    yours = f"They give {_search_rate(result.baseline)}."
    if not others:
        return f"{KEEP}: no other was tried{until}. {yours}"
    worked = any(trial.measurement is not None for trial in others)
    found = "no other was faster" if worked else "no other could be measured"
    return f"{KEEP}: {found}, of {len(others)} tried{until}. {yours}"


def _unconfirmed(result: StudyResult) -> str:
    interrupted = result.ended is StudyEnd.INTERRUPTED
    start = (
        "Not confirmed: the study was interrupted before baseline and best were measured again"
        if interrupted
        else f"{KEEP}: the best found could not be measured again"
    )
    best, baseline = result.best.score, result.baseline.score
    times = Estimate(best / baseline) if best and baseline else None
    return (
        f"{start}. In the search, it gave {numbers.ratio(times)} your samples per second: "
        f"{_search_rate(result.best)} against {_search_rate(result.baseline)}; take it as a hint."
    )


def _arm_rate(confirmation: Confirmation, arm: Arm) -> str:
    found = confirmation.arm(arm)
    return numbers.rate(found.throughput if found is not None else None, " samples/s")


def _search_rate(trial: TrialRecord) -> str:
    measured = trial.measurement
    return numbers.rate(measured.window.throughput if measured else None, " samples/s")
