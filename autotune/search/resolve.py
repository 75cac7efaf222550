"""From the space that was asked for to the one that this job and machine can have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.config import AUTO, SpaceConfig
from autotune.measurement import JobFacts
from autotune.search.space import LOADER_KNOBS, SearchSpace
from autotune.settings import KNOBS, CompileMode, Precision, Settings

_TF32_CAPABILITY = 8.0
"""First CUDA compute capability with tf32 (NVIDIA Ampere)."""

LARGEST_BATCH = 1024
"""Largest automatic batch size."""

_SMALLEST_ACCELERATOR_BATCH = 32


def resolve_space(
    space: SpaceConfig,
    baseline: Settings,
    facts: JobFacts,
    *,
    usable_cpus: int,
    step_cap_s: float,
) -> SearchSpace:
    """Fill in `auto` and leave out what this job or machine cannot have, with a note for each.

    Args:
        space: The space that was asked for.
        baseline: The user's own settings; what is not searched stays as there.
        facts: What the first look at the job told.
        usable_cpus: Processors that this process may use.
        step_cap_s: Seconds that a plain step may take; automatic batches go up to twice that.
    """
    values: dict[str, tuple[Any, ...]] = {}
    notes: list[str] = []
    for knob in KNOBS:
        listed = getattr(space, knob)
        if listed is None:
            continue
        if facts.resident and knob in LOADER_KNOBS:
            notes.append(f"{knob} is not searched: the data stays on the device, without a loader")
            continue
        if knob in facts.preflight.kept:
            continue
        if listed == AUTO:
            listed = (
                _auto_batches(baseline.batch_size, facts, step_cap_s)
                if knob == "batch_size"
                else _auto_workers(usable_cpus)
            )
        kept = tuple(value for value in listed if _unfit(knob, value, listed, facts) is None)
        notes += _notes(knob, listed, facts)
        if kept:
            values[knob] = kept
        else:
            stays = baseline.as_dict()[knob]
            notes.append(f"{knob} is not searched, no value is left; it stays at {stays}")
    unfused = () if facts.fused_obeys_scaler else (Precision.FP16,)
    fused = values.get("fused_optimizer", (baseline.fused_optimizer,))
    if True in fused and set(unfused) & set(values.get("precision", (baseline.precision,))):
        notes.append(
            "fused_optimizer is not combined with precision=fp16: torch's fused SGD leaves its "
            "momentum undefined when GradScaler skips the first step"
        )
    return SearchSpace(values, baseline, tuple(notes), unfused)


def _auto_workers(usable_cpus: int) -> tuple[int, ...]:
    """Return 0, the powers of two up to the usable processors, their number and one less."""
    powers = {2**k for k in range(usable_cpus.bit_length())}
    return tuple(sorted({0, usable_cpus - 1, usable_cpus} | powers))


def _auto_batches(baseline: int, facts: JobFacts, step_cap_s: float) -> tuple[int, ...]:
    """Return powers of two around the baseline that the dataset and the time of a step allow.

    The baseline's batch and its larger neighbour are kept whatever a step takes, so that there is
    a choice; on a CPU the list starts at a quarter of the baseline's.
    """
    start = max(1, baseline // 4) if facts.device.kind == "cpu" else _SMALLEST_ACCELERATOR_BATCH
    in_time = 2 * step_cap_s / facts.seconds_per_sample if facts.seconds_per_sample else math.inf
    in_time = min(in_time, LARGEST_BATCH)
    powers = [2**k for k in range(LARGEST_BATCH.bit_length())]
    sizes = {size for size in powers if min(start, baseline) <= size <= in_time}
    sizes |= {baseline, 2 ** baseline.bit_length()}
    largest = math.inf if facts.samples is None else facts.samples
    return tuple(sorted(size for size in sizes if size <= largest))


def _notes(knob: str, listed: Sequence[Any], facts: JobFacts) -> list[str]:
    """Return a note for each reason for which listed values of a setting are left out."""
    dropped: dict[str, list[str]] = {}
    for value in listed:
        if reason := _unfit(knob, value, listed, facts):
            dropped.setdefault(reason, []).append(str(value).lower())
    return [
        f"{knob}={', '.join(values)} left out of the search: {reason}"
        for reason, values in dropped.items()
    ]


def _unfit(knob: str, value: Any, listed: Sequence[Any], facts: JobFacts) -> str | None:
    """Return why a value cannot be had here, or None when it can."""
    device = facts.device
    if knob == "batch_size" and facts.samples is not None and value > facts.samples:
        return f"the dataset has {facts.samples} samples"
    if knob == "num_workers" and (found := facts.preflight.against_workers(value)) is not None:
        return str(found.code).replace("_", " ")
    if knob == "pin_memory" and value and device.kind == "cpu":
        return "pinned memory serves copies to an accelerator, and this is a CPU"
    if knob == "channels_last" and value and not facts.image_input:
        return "the batches hold no images (4-D floating tensors)"
    if knob == "cudnn_benchmark" and value and device.kind != "cuda":
        return "cuDNN needs a CUDA device"
    if knob == "compile" and value is not CompileMode.OFF and not device.compiler:
        return "torch.compile finds no working compiler here (see `autotune doctor`)"
    if knob == "precision":
        return _unfit_precision(value, listed, facts)
    return None


def _unfit_precision(value: Precision, listed: Sequence[Any], facts: JobFacts) -> str | None:
    device = facts.device
    if value is Precision.BF16 and device.native_bf16 is False:
        return f"{device.name} only emulates bf16"
    if value is Precision.FP16 and device.kind == "cpu":
        return "fp16 with a GradScaler needs an accelerator"
    if value is Precision.TF32:
        if device.kind != "cuda":
            return "tf32 needs a CUDA device"
        if device.capability is not None and float(device.capability) < _TF32_CAPABILITY:
            return f"tf32 needs compute capability {_TF32_CAPABILITY}, not {device.capability}"
    if value is Precision.FP32 and device.kind == "cpu" and Precision.DEFAULT in listed:
        return "the same as default on a CPU"
    return None
