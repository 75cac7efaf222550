"""When a warm-up is over, and whether it was."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.statistics import beginning_shift, block_means

COMPARED = 3
"""Steps whose median is compared with that of as many before them: one odd step moves neither."""

SETTLED_WITHIN = 0.1
"""Steps have settled when the two medians differ by this share at most. Medians of three steps with
5 % of noise, as of a quiet device, differ by less than that in 95 of 100 looks."""


def settled(step_s: Sequence[float]) -> bool:
    """Return whether the last steps take as long as those just before them.

    Args:
        step_s: Seconds of each step so far, without the first one, which compiles and searches.
    """
    if len(step_s) < 2 * COMPARED:
        return False
    return abs(last_change(step_s)) <= SETTLED_WITHIN


def last_change(step_s: Sequence[float]) -> float:
    """Return how much longer the last steps took than those just before them, as a share.

    Args:
        step_s: Seconds of at least two steps.
    """
    take = min(COMPARED, len(step_s) // 2)
    before = statistics.median(step_s[-2 * take : -take])
    return statistics.median(step_s[-take:]) / before - 1


def transient_note(step_s: Sequence[float], steps_per_block: int) -> str | None:
    """Return a note where the window's first quarter surely ran differently from its rest.

    Args:
        step_s: Seconds of each step of the window.
        steps_per_block: Steps in one block.
    """
    shift = beginning_shift(block_means(step_s, steps_per_block))
    if shift is None or abs(shift.value) < SETTLED_WITHIN / 2:
        return None
    word = "longer" if shift.value > 0 else "shorter"
    return (
        f"steps took {abs(shift.value):.0%} {word} in the window's first quarter than in the rest: "
        "the job had not settled, or the machine changed (clock, temperature, a neighbour)"
    )
