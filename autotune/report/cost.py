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
        outside_s_per_trial: Mean seconds of a measured trial outside setting up, warming up,
            measuring and tracing: starting and ending its processes. None without such a trial.
    """

    parts: tuple[tuple[str, float | None], ...]
    outside_s_per_trial: float | None


def study_cost(result: StudyResult) -> StudyCost:
    """Return where the time of a study went."""
    # What a failed trial did until it was stopped is not known in full.
    failed = [trial for trial in result.trials if trial.failure is not None]
    measured = [trial for trial in result.trials if trial.failure is None]
    costs = [trial.outcome.costs for trial in measured]
    windows = _sum(costs, lambda cost: cost.window_s)
    ceilings = _sum(costs, lambda cost: cost.ceiling_s)
    warmup = _sum(costs, lambda cost: cost.warmup_s)
    setup = _sum(costs, lambda cost: cost.setup_s)
    loaders = _sum(costs, lambda cost: cost.loader_ceiling_s)
    traces = _sum(costs, lambda cost: cost.profile_s)
    checks = _sum(costs, lambda cost: cost.guard_s)
    in_measured = sum(trial.total_s for trial in measured)
    in_failed = sum(trial.total_s for trial in failed)
    inside = sum(
        part or 0.0 for part in (windows, ceilings, loaders, warmup, setup, traces, checks)
    )
    outside = max(0.0, in_measured - inside)
    # A resumed study holds trials of an earlier session, which the elapsed time does not.
    between = result.elapsed_s - in_measured - in_failed
    return StudyCost(
        parts=(
            ("timed windows", windows),
            ("windows without loader (ceilings)", ceilings),
            ("windows of the loader alone", loaders),
            ("warm-up, compiling included", warmup),
            ("building data, model, optimizer", setup),
            ("traces", traces),
            ("checks against fp32", checks),
            ("starting and ending processes", outside),
            ("failed trials", in_failed if failed else None),
            ("between trials", between if between >= 0 else None),
            ("whole study", result.elapsed_s),
        ),
        outside_s_per_trial=outside / len(costs) if costs else None,
    )


def _sum(costs: list[Costs], part: Callable[[Costs], float | None]) -> float | None:
    known = [seconds for cost in costs if (seconds := part(cost)) is not None]
    return sum(known) if known else None
