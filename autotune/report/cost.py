"""Where the time of a study went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.measurement import Costs
from autotune.result import StudyResult


@dataclass(frozen=True, kw_only=True)
class StudyCost:
    """Seconds of a study by part.

    Attributes:
        parts: Name and seconds of each part; None where it cannot be told.
        outside_s_per_trial: Mean seconds of a trial outside setting up, warming up, measuring and
            tracing: starting and ending its processes. None without trials.
    """

    parts: tuple[tuple[str, float | None], ...]
    outside_s_per_trial: float | None


def study_cost(result: StudyResult) -> StudyCost:
    """Return where the time of a study went."""
    costs = [trial.outcome.costs for trial in result.trials]
    windows = _sum(costs, lambda cost: cost.window_s)
    ceilings = _sum(costs, lambda cost: cost.ceiling_s)
    warmup = _sum(costs, lambda cost: cost.warmup_s)
    setup = _sum(costs, lambda cost: cost.setup_s)
    traces = _sum(costs, lambda cost: cost.profile_s)
    in_trials = sum(trial.total_s for trial in result.trials)
    inside = sum(part or 0.0 for part in (windows, ceilings, warmup, setup, traces))
    outside = max(0.0, in_trials - inside)
    # A resumed study holds trials of an earlier session, which the elapsed time does not.
    between = result.elapsed_s - in_trials if result.elapsed_s >= in_trials else None
    return StudyCost(
        parts=(
            ("timed windows", windows),
            ("windows without loader (ceilings)", ceilings),
            ("warm-up, compiling included", warmup),
            ("building data, model, optimizer", setup),
            ("traces", traces),
            ("starting and ending processes", outside),
            ("between trials", between),
            ("whole study", result.elapsed_s),
        ),
        outside_s_per_trial=outside / len(costs) if costs else None,
    )


def _sum(costs: list[Costs], part: Callable[[Costs], float | None]) -> float | None:
    known = [seconds for cost in costs if (seconds := part(cost)) is not None]
    return sum(known) if known else None
