"""Simulated step times with a known mean. Arrays are windows x steps, seconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Steps = NDArray[np.float64]


def noise(random: np.random.Generator, spread: float, shape: tuple[int, ...]) -> Steps:
    """Return lognormal factors with mean 1 and the given coefficient of variation."""
    width = np.sqrt(np.log1p(spread**2))
    factors: Steps = np.exp(width * random.standard_normal(shape) - width**2 / 2)
    return factors


def groups(
    random: np.random.Generator,
    windows: int,
    steps: int,
    *,
    workers: int = 8,
    spread: float = 0.3,
    step_s: float = 0.03,
    wait_s: float = 0.96,
) -> tuple[Steps, float]:
    """Return steps of a pool that finishes together: one long wait, then short steps.

    A window begins anywhere in a turn. Median 30 ms, mean 150 ms as it stands.
    """
    turns = steps // workers + 2
    times = step_s * noise(random, 0.03, (windows, turns, workers))
    times[:, :, 0] += wait_s * noise(random, spread, (windows, turns))
    first = random.integers(0, workers, windows)
    picked = first[:, None] + np.arange(steps)
    return np.take_along_axis(times.reshape(windows, -1), picked, 1), step_s + wait_s / workers


def pool(
    random: np.random.Generator,
    windows: int,
    steps: int,
    *,
    workers: int = 8,
    prefetch: int = 2,
    spread: float = 0.25,
    step_s: float = 0.03,
    batch_s: float = 1.2,
) -> Steps:
    """Return steps of a DataLoader's workers, event by event, after 8 turns of warm-up.

    Worker i makes batches i, i + workers, ... one after the other and gets the next order when a
    batch of its is used; batches arrive in order; a step takes `step_s` once its batch is there.
    With these values: median 30 ms, mean 159 ms, 90th percentile 620 ms.
    """
    total, ahead = steps + 8 * workers, workers * prefetch
    free, ends = np.zeros((windows, workers)), np.zeros((windows, total))
    last = np.zeros(windows)
    works = batch_s * noise(random, spread, (windows, total))
    trains = step_s * noise(random, 0.03, (windows, total))
    for i in range(total):
        ordered = ends[:, i - ahead] if i >= ahead else 0.0
        free[:, i % workers] = np.maximum(free[:, i % workers], ordered) + works[:, i]
        last = np.maximum(last, free[:, i % workers]) + trains[:, i]
        ends[:, i] = last
    return np.diff(ends, axis=1)[:, -steps:]


def autoregressive(
    random: np.random.Generator,
    windows: int,
    steps: int,
    *,
    correlation: float,
    spread: float = 0.1,
    step_s: float = 0.05,
) -> tuple[Steps, float]:
    """Return steps whose relative noise is an autoregression of first order, AR(1)."""
    fresh = random.standard_normal((windows, steps))
    state = np.empty_like(fresh)
    state[:, 0] = fresh[:, 0]
    for i in range(1, steps):
        state[:, i] = correlation * state[:, i - 1] + np.sqrt(1 - correlation**2) * fresh[:, i]
    return step_s * (1 + spread * state), step_s


def drifting(
    random: np.random.Generator,
    windows: int,
    steps: int,
    *,
    drift: float = 0.04,
    spread: float = 0.05,
    step_s: float = 0.05,
) -> tuple[Steps, float]:
    """Return steps that grow by the share `drift` from the first to the last.

    The truth is the mean over the window of what a step takes without noise.
    """
    trend = 1 + drift * np.linspace(-0.5, 0.5, steps)
    return step_s * trend * noise(random, spread, (windows, steps)), step_s


def spiked(
    random: np.random.Generator,
    windows: int,
    steps: int,
    *,
    period: int = 100,
    spike_s: float = 0.42,
    step_s: float = 0.05,
) -> tuple[Steps, float]:
    """Return steps of which one in `period` takes longer, as with a checkpoint; any phase."""
    times = step_s * noise(random, 0.02, (windows, steps))
    first = random.integers(0, period, windows)
    times[(first[:, None] + np.arange(steps)) % period == 0] += spike_s
    return times, step_s + spike_s / period


def heavy_tailed(
    random: np.random.Generator,
    windows: int,
    steps: int,
    *,
    spread: float = 1.0,
    step_s: float = 0.05,
) -> tuple[Steps, float]:
    """Return independent lognormal steps; spread 1: one in 100 takes five times the mean."""
    return step_s * noise(random, spread, (windows, steps)), step_s
