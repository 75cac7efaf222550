"""Coverage of a window's 95 % interval on simulated step times, and the stop rule's effect on it.

PYTHONPATH=.:tests/unit python experiments/statistics/coverage.py [windows]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import step_times
from step_times import Steps

from autotune.measure.window import StopRule
from autotune.statistics import (
    Estimate,
    beginning_shift,
    block_means,
    mean_estimate,
    rate_estimate,
)

BLOCKS = (3, 5, 6, 10, 20, 40, 100)
Scenario = Callable[[np.random.Generator, int, int], tuple[Steps, float]]


def pool(**job: float) -> Scenario:
    """Return the event-wise pool, whose mean is that of long runs of it."""
    long = step_times.pool(np.random.default_rng(99), 200, 6000, **job)  # type: ignore[arg-type]

    def sample(random: np.random.Generator, windows: int, steps: int) -> tuple[Steps, float]:
        return step_times.pool(random, windows, steps, **job), float(long.mean())  # type: ignore[arg-type]

    return sample


def scenario(sample: Callable[..., tuple[Steps, float]], **job: float) -> Scenario:
    """Return a scenario with its values filled in."""
    return lambda random, windows, steps: sample(random, windows, steps, **job)


SCENARIOS: dict[str, tuple[Scenario, int]] = {
    "independent, block 8": (scenario(step_times.heavy_tailed, spread=0.05), 8),
    "groups of 8 workers, block 8": (scenario(step_times.groups), 8),
    "pool of 8 workers, block 8": (pool(), 8),
    "AR(1) 0.5, block 8": (scenario(step_times.autoregressive, correlation=0.5), 8),
    "AR(1) 0.9, block 8": (scenario(step_times.autoregressive, correlation=0.9), 8),
    "AR(1) 0.9, block 32": (scenario(step_times.autoregressive, correlation=0.9), 32),
    "AR(1) of blocks, 0.3": (scenario(step_times.autoregressive, correlation=0.3), 1),
    "AR(1) of blocks, 0.6": (scenario(step_times.autoregressive, correlation=0.6), 1),
    "AR(1) of blocks, 0.9": (scenario(step_times.autoregressive, correlation=0.9), 1),
    "drift of 4 %, block 4": (scenario(step_times.drifting), 4),
    "drift of 10 %, block 4": (scenario(step_times.drifting, drift=0.1), 4),
    "lognormal, cv 1, block 4": (scenario(step_times.heavy_tailed), 4),
    "lognormal, cv 2, block 4": (scenario(step_times.heavy_tailed, spread=2.0), 4),
    "a spike in 100 steps, block 8": (scenario(step_times.spiked), 8),
}


def plain(steps: Steps, block: int) -> Estimate:
    """Return the rate by plain batch means with Student's t."""
    step = mean_estimate(block_means(list(steps), block))
    if step.low is None or step.high is None or step.low <= 0:
        return Estimate(1 / step.value)
    return Estimate(1 / step.value, 1 / step.high, 1 / step.low)


def held(steps: Steps, truth: float, block: int, how: Callable[[Steps, int], Estimate]) -> str:
    """Return the share of intervals that hold the truth, and the median relative half-width."""
    found = [how(window, block) for window in steps]
    # Without an upper end an interval holds whatever lies above its lower end.
    inside = [
        each.low is None or each.high is None or each.low <= 1 / truth <= each.high
        for each in found
    ]
    widths = [each.relative_halfwidth or np.inf for each in found]
    return f"{np.mean(inside):5.1%} +-{np.median(widths):5.1%}"


def fixed(windows: int) -> None:
    """Print coverage for windows of a fixed number of blocks."""
    print("| step times | method |", " | ".join(f"{n} blocks" for n in BLOCKS), "|")
    print("| --- | --- |", " ---: |" * len(BLOCKS))
    for name, (sample, block) in SCENARIOS.items():
        cells: dict[str, list[str]] = {"plain": [], "now": []}
        for count in BLOCKS:
            steps, truth = sample(np.random.default_rng(count), windows, count * block)
            cells["plain"].append(held(steps, truth, block, plain))
            cells["now"].append(
                held(steps, truth, block, lambda x, b: rate_estimate(x, 1.0, b))  # type: ignore[arg-type]
            )
        for method, row in cells.items():
            print(f"| {name} | {method} |", " | ".join(row), "|", flush=True)


def stopped(steps: Steps, truth: float, block: int, rule: StopRule, block_s: float) -> str:
    """Return coverage, mean blocks, and the share that converged, with the real stop rule."""
    inside, lengths, converged = [], [], []
    for window in steps:
        means = block_means(list(window), block)
        for count in range(1, len(means) + 1):
            decision = rule.decide(means[:count], count * block, 1.0, count * block_s)
            if decision is not None:
                break
        rate = rate_estimate(list(window[: count * block]), 1.0, block)
        inside.append(rate.low is None or rate.high is None or rate.low <= 1 / truth <= rate.high)
        lengths.append(count)
        converged.append(decision is not None and decision[0].value == "converged")
    return f"{np.mean(inside):5.1%} {np.mean(lengths):4.1f} {np.mean(converged):4.0%}"


def sequential(windows: int) -> None:
    """Print coverage with the stop rule; blocks of 0.2 s, cap 8 s, target 2 %."""
    spreads = (0.01, 0.02, 0.03, 0.04, 0.06)
    jobs: dict[str, tuple[Callable[[float], Scenario], int]] = {
        "independent blocks": (lambda s: scenario(step_times.heavy_tailed, spread=s), 1),
        "AR(1) of blocks, 0.2": (
            lambda s: scenario(step_times.autoregressive, correlation=0.2, spread=s),
            1,
        ),
        "AR(1) of blocks, 0.3": (
            lambda s: scenario(step_times.autoregressive, correlation=0.3, spread=s),
            1,
        ),
        "groups of 8 workers": (lambda s: scenario(step_times.groups, spread=1.25 * s), 8),
        "pool of 8 workers": (lambda s: pool(spread=s), 8),
    }
    for min_blocks in (6, 10):
        rule = StopRule(
            rel_halfwidth=0.02, cap_s=8.0, min_blocks=min_blocks, min_steps=3, steps_per_block=1
        )
        print(f"\n| at least {min_blocks} blocks |", " | ".join(f"{s:.0%}" for s in spreads), "|")
        print("| --- |", " ---: |" * len(spreads))
        for name, (make, block) in jobs.items():
            row = []
            for number, spread in enumerate(spreads):
                steps, truth = make(spread)(np.random.default_rng(number), windows, 40 * block)
                row.append(stopped(steps, truth, block, rule, 0.2))
            print(f"| {name} |", " | ".join(row), "|", flush=True)


def beginnings(windows: int) -> None:
    """Print how often a window's beginning is called different: falsely, and rightly."""
    print("\n| step times, 40 blocks | no shift | first tenth 10 % slower | first quarter 10 % |")
    print("| --- | ---: | ---: | ---: |")
    for name, (sample, block) in SCENARIOS.items():
        steps, _ = sample(np.random.default_rng(7), windows, 40 * block)
        row = []
        for share in (0.0, 0.1, 0.25):
            shifted = steps.copy()
            shifted[:, : int(share * steps.shape[1])] *= 1.1
            told = [beginning_shift(block_means(list(w), block)) is not None for w in shifted]
            row.append(f"{np.mean(told):.1%}")
        print(f"| {name} |", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    fixed(count)
    sequential(count // 2)
    beginnings(count // 2)
