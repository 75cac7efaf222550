"""How often a confirmation gives which verdict, on simulated rates of fresh processes.

PYTHONPATH=. python experiments/statistics/verdicts.py [confirmations]
"""

from __future__ import annotations

import sys

import numpy as np

from autotune.statistics import Verdict, compare, process_spread, verdict

MIN_ROUNDS, MAX_ROUNDS = 3, 6
SPREADS = (0.01, 0.03, 0.05, 0.1, 0.2, 0.3)


def rates(random: np.random.Generator, count: int, spread: float, disturbed: float) -> np.ndarray:
    """Return rates of fresh processes; a share `disturbed` of them runs a third slower."""
    found = 100 * np.exp(random.normal(0, spread, (count, MAX_ROUNDS)))
    found[random.random(found.shape) < disturbed] *= 2 / 3
    return found


def confirmation(candidate: np.ndarray, baseline: np.ndarray) -> tuple[Verdict, int]:
    """Return the verdict and the rounds, looking after each round as `tuner/confirm.py` does."""
    looks = MAX_ROUNDS - MIN_ROUNDS + 1
    for rounds in range(MIN_ROUNDS, MAX_ROUNDS + 1):
        seen = compare(list(candidate[:rounds]), list(baseline[:rounds]), looks=looks).verdict
        if seen is not Verdict.UNSURE:
            break
    return seen, rounds


def table(title: str, ratio: float, count: int, disturbed: float = 0.0) -> None:
    """Print the verdicts for one true ratio at each spread."""
    print(f"\n| {title} | " + " | ".join(f"{s:.0%}" for s in SPREADS) + " |")
    print("| --- |" + " ---: |" * len(SPREADS))
    columns = []
    for number, spread in enumerate(SPREADS):
        random = np.random.default_rng(number)
        first = ratio * rates(random, count, spread, disturbed)
        second = rates(random, count, spread, disturbed)
        seen = [confirmation(a, b) for a, b in zip(first, second, strict=True)]
        names = [name for name, _ in seen]
        columns.append(
            [f"{names.count(which) / count:.1%}" for which in Verdict]
            + [f"{np.mean([rounds for _, rounds in seen]):.1f}"]
        )
    for row, name in enumerate([*Verdict, "rounds"]):
        print(f"| {name} | " + " | ".join(column[row] for column in columns) + " |")


def spread_coverage(count: int) -> None:
    """Print the coverage of the interval of the process-to-process spread."""
    print("\n| fresh processes, true spread | " + " | ".join(f"{s:.0%}" for s in SPREADS) + " |")
    print("| --- |" + " ---: |" * len(SPREADS))
    for arms, rounds in ((2, 3), (3, 3), (3, 6)):
        row = []
        for number, spread in enumerate(SPREADS):
            random = np.random.default_rng(number)
            errors = [[0.01] * rounds] * arms
            inside = 0
            for _ in range(count):
                logs = random.normal(0, np.hypot(spread, 0.01), (arms, rounds))
                found = process_spread(np.exp(logs), errors)  # type: ignore[arg-type]
                assert found is not None
                assert found.low is not None
                assert found.high is not None
                inside += found.low <= spread <= found.high
            row.append(f"{inside / count:.1%}")
        print(f"| {arms} contestants, {rounds} rounds | " + " | ".join(row) + " |")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for prior in (0.1, 0.2, 0.3):
        verdict.PRIOR_SPREAD = prior
        table(f"identical settings, PRIOR_SPREAD {prior:g}", 1.0, count)
    verdict.PRIOR_SPREAD = 0.2
    table("identical, 1 process in 5 a third slower", 1.0, count, disturbed=0.2)
    for gain in (1.05, 1.2, 2.0):
        for prior in (0.1, 0.2):
            verdict.PRIOR_SPREAD = prior
            table(f"gain of {gain:g} x, PRIOR_SPREAD {prior:g}", gain, count // 4)
    spread_coverage(count)
