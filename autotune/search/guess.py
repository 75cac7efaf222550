"""Settings that are chosen without measuring: the user's own, and an expert's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from autotune.config import AUTO, BaselineConfig
from autotune.errors import config_error
from autotune.measurement import JobFacts, Measurement
from autotune.search.space import SearchSpace
from autotune.settings import KNOBS, CompileMode, Precision, Settings

USUAL_BATCH = 32
"""Batch of a baseline that names none."""

_EXPERT_ACCELERATOR_BATCH = 256
_EXPERT_PREFETCH = 2

_INPUT_BOUND = 0.2
"""Share of the window spent waiting for data from which on the loader's knobs are tried first."""

_HALVES = (str(Precision.BF16), str(Precision.FP16))

_LOADER_STEPS = ("num_workers", "batch_size", "prefetch_factor", "pin_memory")
_DEVICE_STEPS = ("precision", "batch_size", "compile", "channels_last", "fused_optimizer")


def baseline_settings(config: BaselineConfig, facts: JobFacts, step_cap_s: float) -> Settings:
    """Return the user's own settings.

    An automatic batch is `USUAL_BATCH`, halved until the dataset holds one and a plain step takes
    at most `step_cap_s` seconds. A number is obeyed.

    Raises:
        ConfigError: The number is above that of the samples.
    """
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    largest = math.inf if facts.samples is None else facts.samples
    if isinstance(config.batch_size, int) and config.batch_size > largest:
        raise config_error(
            "baseline.batch_size",
            config.batch_size,
            f"at most {largest}, the number of samples in the dataset, or {AUTO}",
        )
    if config.batch_size == AUTO:
        batch = USUAL_BATCH
        while batch > 1 and (batch > largest or batch * facts.seconds_per_sample > step_cap_s):
            batch //= 2
        values["batch_size"] = batch
    return Settings(**{knob: values[knob] for knob in KNOBS})


def expert_settings(
    baseline: Settings, space: SearchSpace, facts: JobFacts, *, usable_cpus: int
) -> Settings:
    """Return what a good engineer would pick for this machine unmeasured, within the space.

    A worker for each usable processor but one, pinned memory, bf16 where the device has it,
    channels_last for images, a larger batch on an accelerator, no compiling.
    """
    accelerator = facts.device.kind != "cpu"
    bf16 = accelerator and facts.device.native_bf16 is True
    wishes: dict[str, Any] = {
        "batch_size": _EXPERT_ACCELERATOR_BATCH if accelerator else baseline.batch_size,
        "num_workers": 0 if facts.resident else max(1, usable_cpus - 1),
        "pin_memory": accelerator,
        "prefetch_factor": _EXPERT_PREFETCH,
        "persistent_workers": True,
        "precision": str(Precision.BF16 if bf16 else baseline.precision),
        "compile": str(CompileMode.OFF),
        "channels_last": facts.image_input,
        "fused_optimizer": facts.device.kind == "cuda",
        "cudnn_benchmark": facts.device.kind == "cuda",
    }
    plain = baseline.as_dict()
    chosen = {knob: _pick(wishes[knob], plain[knob], space.choices(knob)) for knob in space.values}
    return space.complete(chosen)


def _pick(wish: Any, baseline: Any, choices: Sequence[Any]) -> Any:
    """Return the wish, or what comes next to it among the choices."""
    if wish in choices:
        return wish
    if isinstance(wish, int) and not isinstance(wish, bool):
        # Nearest by ratio; the smaller of two that are equally near.
        return min(choices, key=lambda value: (abs(math.log((value + 1) / (wish + 1))), value))
    return baseline if baseline in choices else choices[0]


def steps_from(best: Measurement, space: SearchSpace) -> Iterator[Settings]:
    """Yield the settings that an engineer would try next: one knob of the best, one value up.

    What limits the best decides which knobs come first: the loader's where the device waits for
    data, the device's where it does not.

    Args:
        best: Measurement of the best settings so far.
        space: What may be tried.
    """
    waits = best.window.stall_share >= _INPUT_BOUND
    order = (*_LOADER_STEPS, *_DEVICE_STEPS) if waits else (*_DEVICE_STEPS, *_LOADER_STEPS)
    plain = best.settings.as_dict()
    for knob in dict.fromkeys(order):
        if knob not in space.values or plain[knob] not in space.choices(knob):
            continue
        upwards = _next_up(knob, plain[knob], space.choices(knob))
        if upwards is None:
            continue
        chosen = {name: plain[name] for name in space.values} | {knob: upwards}
        yield space.complete(
            {
                name: value if value in space.choices(name) else space.choices(name)[0]
                for name, value in chosen.items()
            }
        )


def _next_up(knob: str, value: Any, choices: Sequence[Any]) -> Any:
    """Return the value to try after this one, or None where there is no more."""
    if isinstance(value, bool):
        return True if not value and True in choices else None
    if isinstance(value, int):
        return min((choice for choice in choices if choice > value), default=None)
    later = list(choices[choices.index(value) + 1 :])
    if knob == "precision":
        halves = [choice for choice in (Precision.BF16, Precision.FP16) if choice in later]
        return str(halves[0]) if halves and value not in _HALVES else None
    return later[0] if later else None
