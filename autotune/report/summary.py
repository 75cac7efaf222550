"""The outcome of a study in one or two sentences."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.objective import Objective
from autotune.report import numbers
from autotune.result import Arm, Confirmation, Role, StudyEnd, StudyResult, TrialRecord
from autotune.statistics import (
    LEVEL,
    SAME_WITHIN,
    VERDICT_LEVEL,
    Comparison,
    Estimate,
    Verdict,
)


def headline(result: StudyResult) -> str:
    """Return the outcome in one or two sentences."""
    if result.confirmation is not None:
        return _confirmed(result, result.confirmation)
    if result.best.settings == result.baseline.settings:
        return _unbeaten(result)
    return _unconfirmed(result)


def _confirmed(result: StudyResult, confirmation: Confirmation) -> str:
    times = numbers.ratio(confirmation.versus_baseline.ratio)
    number, word = confirmation.rounds, _words(result.objective)
    rounds = f"over {number} interleaved rounds" if number > 1 else "in one round, too few to tell"
    if result.verdict is Verdict.FASTER:
        return (
            f"{word.better.capitalize()}: {times} your {result.objective.name}: "
            f"{_arm_score(result, confirmation, Arm.BEST)} against "
            f"{_arm_score(result, confirmation, Arm.BASELINE)}, {rounds}.{_beside_expert(result)}"
        )
    found = {
        Verdict.SAME: f"the best found is {word.same}, within {numbers.share(SAME_WITHIN)}",
        Verdict.SLOWER: f"the best of the search was {word.worse} when measured again",
    }.get(result.verdict, f"the best found is not clearly {word.better}")
    return (
        f"{_keep(result)}: {found}: {times} your {result.objective.name}, {rounds}."
        f"{_stricter(confirmation.versus_baseline)}"
    )


def _stricter(compared: Comparison) -> str:
    """Return why there is no verdict although the shown interval leaves 1 out."""
    ratio = compared.ratio
    if compared.verdict is not Verdict.UNSURE or ratio.low is None or ratio.high is None:
        return ""
    if ratio.low <= 1 <= ratio.high or abs(ratio.value - 1) <= SAME_WITHIN:
        return ""
    return (
        f" The interval shown is of {numbers.share(LEVEL)}; a verdict takes "
        f"{numbers.share(VERDICT_LEVEL)}, shared among all looks at the rounds, and these rounds "
        "do not give that: more of them could (confirmation.max_rounds, budget.minutes)."
    )


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
    yours = f"They give {_search_score(result, result.baseline)}."
    if not others:
        return f"{_keep(result)}: no other was tried{until}. {yours}"
    worked = any(trial.measurement is not None for trial in others)
    better = _words(result.objective).better
    found = f"no other was {better}" if worked else "no other could be measured"
    return f"{_keep(result)}: {found}, of {len(others)} tried{until}. {yours}"


def _keep(result: StudyResult) -> str:
    if result.configured is None:
        return "Keep your settings"
    return (
        f"Keep your settings but for the batch size: your {result.yours.batch_size} does not fit "
        f"into memory, {result.baseline.settings.batch_size} does"
    )


def _unconfirmed(result: StudyResult) -> str:
    interrupted = result.ended is StudyEnd.INTERRUPTED
    start = (
        "Not confirmed: the study was interrupted before baseline and best were measured again"
        if interrupted
        else f"{_keep(result)}: {_why_not_again(result)}"
    )
    best, baseline = result.best.score, result.baseline.score
    times = Estimate(best / baseline) if best and baseline else None
    return (
        f"{start}. In the search, it gave {numbers.ratio(times)} your {result.objective.name}: "
        f"{_search_score(result, result.best)} against {_search_score(result, result.baseline)}; "
        "take it as a hint."
    )


def _why_not_again(result: StudyResult) -> str:
    """Return what became of the best found in the confirmation."""
    again = [
        trial
        for trial in result.trials
        if trial.role is Role.CONFIRMATION
        and trial.settings == result.best.settings
        and trial.score is None
    ]
    if not again:
        return "the best found could not be measured again"
    failure = again[-1].failure
    if failure is None:
        return (
            f"the best found cannot be used, as measuring it again showed: {again[-1].infeasible}"
        )
    kind = failure.failure.value.replace("_", " ")
    return f"the best found failed when it was measured again ({kind}: {failure.message})"


def _arm_score(result: StudyResult, confirmation: Confirmation, arm: Arm) -> str:
    found = confirmation.arm(arm)
    score = found.score if found is not None else None
    return numbers.rate(score, f" {result.objective.unit}")


def _search_score(result: StudyResult, trial: TrialRecord) -> str:
    if result.objective.is_plain:
        measured = trial.measurement
        return numbers.rate(measured.window.throughput if measured else None, " samples/s")
    score = None if trial.score is None else Estimate(trial.score)
    return numbers.rate(score, f" {result.objective.unit}")


@dataclass(frozen=True)
class _Words:
    better: str
    worse: str
    same: str


def _words(objective: Objective) -> _Words:
    """Return the comparatives of a score: more samples from a joule is not faster."""
    if objective.metric == "energy":
        return _Words("better", "worse", "as good")
    return _Words("faster", "slower", "as fast")
