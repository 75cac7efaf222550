"""What a CPU says of a step that broke the device, whose own message is seldom the reason.

A label out of range is a device-side assert on CUDA, reported late and at another line; on a CPU it
is an IndexError with the label in it.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
from torch.utils.data import IterableDataset

from autotune.loader import resident_batch
from autotune.measure.timers import HostTimer
from autotune.request import TrialRequest
from autotune.settings import Settings
from autotune.trial import failures
from autotune.trial.job import TrainingJob
from autotune.trial.time_limit import TooLong, time_limit
from autotune.workloads.workload import Workload

LOOK_S = 20.0
"""Seconds that the look may take: a large model takes long on a CPU, and the trial has failed."""

_SAMPLES = 64
"""Samples that are looked at: drawn at random, since a label that repeats with a period, or comes
in one run, can slip through a regular grid."""


def reason_on_cpu(workload: Workload, request: TrialRequest, left_s: float) -> str | None:
    """Train one plain step on the CPU and return what it raises, in words; None if it passes.

    The device is not touched: its context is of no more use.

    Args:
        workload: What was trained.
        request: Of the trial that broke the device.
        left_s: Seconds until the trial's limit.
    """
    try:
        with time_limit(min(LOOK_S, left_s / 2)):
            samples = _drawn(workload, request.seed)
            batch = resident_batch(workload, _SAMPLES, samples)
            settings = Settings(batch_size=_SAMPLES)
            job = TrainingJob(workload, settings, torch.device("cpu"), request.seed)
            job.step(itertools.repeat(batch), HostTimer())
    except TooLong:
        return None
    except Exception as error:
        return failures.explain(error)
    return None


def _drawn(workload: Workload, seed: int) -> list[Any] | None:
    """Return random samples; None for a stream, which begins as it begins."""
    if isinstance(workload.dataset, IterableDataset):
        return None
    length = len(workload.dataset)  # type: ignore[arg-type]
    drawn = random.Random(seed).sample(range(length), min(_SAMPLES, length))
    return [workload.dataset[index] for index in drawn]
