"""What was tried and left out: overlapping batch means, and cutting a beginning off by MSER-5.

PYTHONPATH=.:tests/unit python experiments/statistics/alternatives.py [windows]
"""

from __future__ import annotations

import sys

import numpy as np
import step_times
from step_times import Steps

from autotune.statistics import student_t


def overlapping(steps: Steps, block: int) -> tuple[Steps, Steps]:
    """Return mean and half-width by overlapping batch means with 1.5 x the degrees of freedom.

    Meketon and Schmeiser 1984, "Overlapping batch means: something for nothing?".
    """
    count = steps.shape[1]
    sums = np.cumsum(np.pad(steps, ((0, 0), (1, 0))), axis=1)
    means = (sums[:, block:] - sums[:, :-block]) / block
    mean = steps.mean(axis=1)
    apart = ((means - mean[:, None]) ** 2).sum(axis=1)
    variance = count * block * apart / ((count - block + 1) * (count - block)) / count
    return mean, student_t(1.5 * (count / block - 1), 0.95) * np.sqrt(variance)


def disjoint(steps: Steps, block: int) -> tuple[Steps, Steps]:
    """Return mean and half-width by plain batch means."""
    means = steps.reshape(len(steps), -1, block).mean(axis=2)
    error = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
    return means.mean(axis=1), student_t(means.shape[1] - 1, 0.95) * error


def mser5(steps: Steps) -> Steps:
    """Return the mean of each window without the beginning that MSER-5 cuts off (White 1997)."""
    fives = steps[:, : steps.shape[1] // 5 * 5].reshape(len(steps), -1, 5).mean(axis=2)
    count = fives.shape[1]
    marginal = [
        fives[:, cut:].var(axis=1) / (count - cut) for cut in range(count // 2)
    ]  # squared standard error of what is left
    cuts = np.argmin(marginal, axis=0)
    return np.array([row[cut:].mean() for row, cut in zip(fives, cuts, strict=True)])


if __name__ == "__main__":
    windows = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    random = np.random.default_rng(0)
    for name, (steps, truth) in {
        "groups of 8, 3 turns": step_times.groups(random, windows, 24),
        "groups of 8, 6 turns": step_times.groups(random, windows, 48),
        "independent, 3 blocks of 8": step_times.heavy_tailed(random, windows, 24, spread=0.05),
        "independent, 6 blocks of 8": step_times.heavy_tailed(random, windows, 48, spread=0.05),
    }.items():
        row = []
        for method in (disjoint, overlapping):
            mean, half = method(steps, 8)
            inside = np.mean(np.abs(mean - truth) <= half)
            row.append(f"{inside:.1%}, {np.median(half / mean):.1%}")
        print(f"| {name} | " + " | ".join(row) + " |")
    for name, (steps, truth) in {
        "groups of 8, 6 turns": step_times.groups(random, windows, 48),
        "groups of 8, 20 turns": step_times.groups(random, windows, 160),
        "lognormal, cv 1, 160 steps": step_times.heavy_tailed(random, windows, 160),
        "a spike in 100 steps, 320 steps": step_times.spiked(random, windows, 320),
    }.items():
        whole, cut = steps.mean(axis=1).mean() / truth - 1, mser5(steps).mean() / truth - 1
        print(f"| {name} | {whole:+.1%} | {cut:+.1%} |")
