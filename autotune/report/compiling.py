"""What compiling cost, when that has paid, and where it fell back, in words."""

from __future__ import annotations

from autotune.breakeven import BreakEven
from autotune.report import numbers
from autotune.result import Role, StudyResult
from autotune.statistics import Estimate

_FALL_BACKS = 5
"""Different fall-backs that are told at most."""


def compiling(result: StudyResult) -> tuple[str, ...]:
    """Return sentences about torch.compile: break-even of the recommended settings, fall-backs."""
    told = result.break_even
    return (() if told is None else (_pays_off(told),)) + _fall_backs(result)


def _pays_off(told: BreakEven) -> str:
    cold = {True: " with a cold cache", False: " with a warm cache", None: ""}[told.cold]
    costs = f"compiling costs {numbers.duration(told.compile_s)}{cold}"
    if told.steps is None:
        return f"{costs}; it never pays off: a setting that does not compile is as fast"
    epochs = "" if told.epochs is None else f", {numbers.plain(told.epochs)} epochs"
    return f"{costs}; pays off after {_steps(told.steps)}{epochs}"


def _steps(steps: Estimate) -> str:
    if steps.low is None or steps.high is not None:
        return numbers.rate(steps, " steps")
    value = numbers.rate(Estimate(steps.value), " steps")
    return f"{value} ({numbers.plain(steps.low)} or more)"


def _fall_backs(result: StudyResult) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for trial in result.trials:
        if trial.measurement is None or trial.measurement.compilation is None:
            continue
        why = trial.measurement.compilation.fell_back
        if why is not None and trial.role is not Role.CONFIRMATION:
            mode = trial.settings.compile
            first.setdefault(why, f"trial {trial.number:03d} (compile={mode}) fell back: {why}")
    return tuple(first.values())[:_FALL_BACKS]
