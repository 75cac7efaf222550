"""From the steps that a `StepTimer` kept to the figures of its report."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from autotune.statistics import Estimate, block_means, mean_estimate, rate_estimate
from autotune.timing.history import StepHistory
from autotune.timing.report import OTHER, PhaseTimes, SpikeGroup, StepReport, StepTimes
from autotune.timing.spikes import Spikes, find_spikes, spike_limit

DATA = "data"
"""The phase of `StepTimer.iterate`."""

BLOCKS = 20
"""Blocks whose means give the interval of the mean step (10 to 30 are enough for a good interval,
and more only make them dependent: Schmeiser 1982, "Batch size effects in the analysis of simulation
output")."""


def step_report(
    history: StepHistory | None,
    paths: tuple[str, ...],
    *,
    device: torch.device,
    workers: int,
    on_device: bool,
) -> StepReport:
    """Return the report on the steps that are kept.

    Args:
        history: The steps, at least one; None for a disabled timer.
        paths: Phases in the history's order.
        device: Where the steps ran.
        workers: DataLoader workers; a block spans a whole turn of them.
        on_device: The timer's clock was not the host's.
    """
    if history is None:
        nothing = np.empty(0)
        return StepReport(device.type, 0, 0, None, None, (), (), (), None, None, nothing, {})
    kept_s = history.step_s
    warm = _warm_up_steps(history.first_s, kept_s)
    skip = max(0, warm - history.dropped)
    step_s = kept_s[skip:]
    first = history.dropped + skip + 1
    phase_s = {path: history.phase_s(i)[skip:] for i, path in enumerate(paths)}
    host_s = {path: history.host_s(i)[skip:] for i, path in enumerate(paths)}
    parts_s = {path: np.nan_to_num(seconds) for path, seconds in phase_s.items() if "/" not in path}
    parts_s[OTHER] = np.maximum(0.0, step_s - sum(parts_s.values()))
    total_s = float(step_s.sum())
    block = max(1, workers, len(step_s) // BLOCKS)
    blocks = block_means(step_s, block)  # type: ignore[arg-type]
    mean = mean_estimate(blocks) if len(blocks) > 1 else Estimate(float(step_s.mean()))
    samples = history.samples[skip:]
    known = not np.isnan(samples).any()
    waits = DATA in phase_s
    return StepReport(
        device=device.type,
        steps=history.dropped + len(kept_s),
        first=first,
        step=StepTimes(mean, float(np.median(step_s)), float(np.percentile(step_s, 95))),
        samples_per_s=rate_estimate(step_s, float(samples.mean()), block)  # type: ignore[arg-type]
        if known
        else None,
        phases=tuple(
            times
            for path in (*_nested_order(paths), OTHER)
            if (
                times := _phase_times(
                    path,
                    phase_s.get(path, parts_s[OTHER]),
                    host_s.get(path) if on_device else None,
                    total_s,
                )
            )
            is not None
        ),
        warm_up_s=tuple(history.first_s[:warm]),
        spikes=_spikes(step_s, parts_s, history.restarted[skip:], first),
        host_wait_s=float(np.nansum(host_s[DATA])) / len(step_s) if waits else None,
        stall_s=float(np.nansum(phase_s[DATA])) / len(step_s) if waits and on_device else None,
        step_s=step_s,
        parts_s=parts_s,
    )


def _warm_up_steps(first_s: list[float], kept_s: NDArray[np.float64]) -> int:
    """Return how many first steps are warm-up: the first, and what is a spike right after it."""
    if len(kept_s) < 2:
        return 0
    limit = spike_limit(kept_s[1:])
    warm = 1
    while warm < min(len(first_s), len(kept_s) // 2) and first_s[warm] > limit:
        warm += 1
    return warm


def _nested_order(paths: tuple[str, ...]) -> list[str]:
    """Return the paths, each before those inside it, as they were first seen."""
    seen = {path: number for number, path in enumerate(paths)}

    def ancestry(path: str) -> list[int]:
        names = path.split("/")
        return [seen["/".join(names[: depth + 1])] for depth in range(len(names))]

    return sorted(paths, key=ancestry)


def _phase_times(
    path: str,
    seconds: NDArray[np.float64],
    host_s: NDArray[np.float64] | None,
    total_s: float,
) -> PhaseTimes | None:
    """Return the times of a phase, or None if it ran in none of the steps."""
    ran = seconds[~np.isnan(seconds)]
    if not len(ran):
        return None
    return PhaseTimes(
        path=path,
        steps=len(ran),
        median_s=float(np.median(ran)),
        mean_s=float(ran.mean()),
        p95_s=float(np.percentile(ran, 95)),
        share=float(ran.sum()) / total_s if total_s else math.nan,
        host_s=None if host_s is None else float(np.nanmean(host_s)),
    )


def _spikes(
    step_s: NDArray[np.float64],
    parts_s: Mapping[str, NDArray[np.float64]],
    restarted: NDArray[np.bool_],
    first: int,
) -> tuple[SpikeGroup, ...]:
    restarts = np.flatnonzero(restarted & (step_s > spike_limit(step_s)))
    others_s = step_s
    groups: list[Spikes] = []
    if 2 * len(restarts) > restarted.sum():
        usual = float(np.median(step_s))
        groups.append(Spikes(restarts, float(np.median(step_s[restarts])) - usual))
        others_s = step_s.copy()
        others_s[restarts] = usual
    found = find_spikes(others_s)
    return tuple(
        SpikeGroup(
            steps=tuple(int(position) + first for position in group.at),
            excess_s=group.excess_s,
            phase=_phase_of(group, parts_s),
            every=group.every,
            due=group.due,
            at_restart=number < len(groups),
        )
        for number, group in enumerate([*groups, *found])
    )


def _phase_of(group: Spikes, parts_s: Mapping[str, NDArray[np.float64]]) -> str:
    """Return the outermost phase that holds most of what the spikes are above the median."""
    excess_s = {
        path: float((seconds[group.at] - np.median(seconds)).sum())
        for path, seconds in parts_s.items()
    }
    return max(excess_s, key=lambda path: excess_s[path])
