"""One plain look at the job before the search: device, dataset, one small step; the preflight."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import torch

from autotune.loader import resident_batch
from autotune.measure.device import device_info, synchronize
from autotune.measure.machine import MIN_COUNTED_S, MachineWatch
from autotune.measure.timers import HostTimer
from autotune.measurement import JobFacts
from autotune.request import TrialRequest
from autotune.settings import Settings
from autotune.trial.job import TrainingJob
from autotune.trial.preflight import Look, run_preflight
from autotune.workloads.batch import has_image
from autotune.workloads.workload import Workload

PLAIN_BATCH = 4
"""Samples in the plain step: more than BatchNorm's two, few enough for any device."""


def inspect_job(workload: Workload, request: TrialRequest, device: torch.device) -> JobFacts:
    """Train three plain eager steps on a small batch, then check what trials depend on.

    The last step is timed: the first ones pay for allocations and kernel selection. The machine is
    watched meanwhile, or for a moment longer, so that a busy one is told before anything counts.
    """
    watch = MachineWatch(device)
    watch.begin()
    watched_s = time.perf_counter()
    size = dataset_size(workload)
    samples = PLAIN_BATCH if size is None else max(1, min(PLAIN_BATCH, size))
    job = TrainingJob(workload, Settings(batch_size=samples), device, request.seed)
    batch = job.place(resident_batch(workload, samples))
    timer = HostTimer()
    step_s = 0.0
    for _ in range(3):
        started = time.perf_counter()
        job.step(itertools.repeat(batch), timer)
        synchronize(device)
        step_s = time.perf_counter() - started
    job.loss_value()
    time.sleep(max(0.0, watched_s + MIN_COUNTED_S - time.perf_counter()))
    facts = JobFacts(
        device=device_info(device),
        dataset_size=size,
        parameters=job.parameters,
        image_input=has_image(batch),
        resident=workload.resident,
        fused_obeys_scaler=job.fused_obeys_scaler,
        seconds_per_sample=step_s / samples,
        machine=watch.end(),
    )
    if request.preflight is None:
        return facts
    look = Look(
        workload=workload,
        scope=request.preflight,
        device=device,
        seed=request.seed,
        seconds_per_sample=facts.seconds_per_sample,
    )
    return replace(facts, preflight=run_preflight(look))


def dataset_size(workload: Workload) -> int | None:
    """Return the number of samples of a map-style dataset, or None for a stream."""
    if workload.resident or isinstance(workload.dataset, torch.utils.data.IterableDataset):
        return None
    return len(workload.dataset)  # type: ignore[arg-type]
