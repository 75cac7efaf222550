"""The numerics guard: the plain job in strict fp32 on the same batch, and its place on disk.

It runs after everything is measured and the job is released. It can only add to a trial: what goes
wrong here (no memory, no time) leaves the setting unchecked, with the reason.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import hashlib
import itertools
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autotune.config import WorkloadSpec
from autotune.durable import write_whole
from autotune.errors import OutputError
from autotune.loader import resident_batch
from autotune.measure.device import synchronize
from autotune.measure.timers import HostTimer
from autotune.measurement import FailureKind, NumericsReport
from autotune.request import TrialRequest
from autotune.settings import CompileMode, Precision, Settings
from autotune.trial import failures
from autotune.trial.first_steps import FirstSteps
from autotune.trial.job import TrainingJob
from autotune.trial.judge import BF16_ROUNDOFF, Reference, compare, tolerance
from autotune.workloads.batch import fingerprint
from autotune.workloads.workload import Workload

FOLDER = "references"
"""Folder beside those of the trials: what one of them found serves the others of the study."""

SLOWER, SLOWER_ON_CPU = 10.0, 3.0
"""Strict fp32 is taken to need up to this multiple of a setting's step. Seen on an H200 with
ResNet-50: 6,400 samples/s compiled in bf16, 940 in fp32. A CPU gains less from either."""

SPARE_S = 3.0
"""Seconds of a trial's limit that the guard leaves alone: building the model twice, first calls."""


class _UncheckedError(Exception):
    """There is no reference; the text says why."""


class NumericsGuard:
    """Holds a setting's first steps against the plain job's.

    Args:
        request: The trial.
        device: Where it ran.
        samples: What its resident batch was made of.
        batch: Fingerprint of that batch.
    """

    def __init__(
        self, request: TrialRequest, device: torch.device, samples: Sequence[Any], batch: str
    ) -> None:
        self._request = request
        self._device = device
        self._samples = samples
        self._batch = batch

    def check(
        self,
        workload: Workload,
        alone: NumericsReport,
        first: FirstSteps,
        *,
        step_s: float,
        left_s: float,
    ) -> NumericsReport:
        """Return the report with the comparison, or with the reason why there is none.

        Args:
            workload: What is trained, untouched by the trial. Its job must be gone, for the memory.
            alone: What the setting's own steps tell.
            first: These steps.
            step_s: Seconds of a step under the setting.
            left_s: Seconds until the trial would be killed.
        """
        settings = self._request.settings
        started = time.perf_counter()
        try:
            reference = self._reference(workload, first, step_s, left_s)
        except _UncheckedError as error:
            return replace(alone, unchecked=str(error))
        except Exception as error:  # whatever it is, the measurement stands
            why = f"the fp32 job failed: {failures.explain(error)}"
            if failures.classify(error, self._device) is FailureKind.OUT_OF_MEMORY:
                why = f"the fp32 job does not fit into memory at batch {settings.batch_size}"
            return replace(alone, unchecked=why)
        allowed = tolerance(settings.precision, self._device.type)
        found = compare(alone, reference, allowed)
        left_s -= time.perf_counter() - started
        if found.failed is not None and not self._repeats(workload, first, allowed, left_s):
            why = f"the job does not repeat its own first losses ({found.failed})"
            return replace(found, failed=None, unchecked=why)
        return found

    def _repeats(
        self, workload: Workload, first: FirstSteps, allowed: float, left_s: float
    ) -> bool:
        """Return whether the setting's own first steps come out as they did before.

        A loss that anneals, or a model that counts its calls, makes other numbers later on under
        any setting; that is not the setting's fault. Without the time to tell, it is taken to be.
        """
        self._release()
        try:
            again, _ = self._steps(
                workload,
                self._request.seed,
                len(first.losses),
                left_s / 2,
                left_s / 2,
                self._request.settings,
            )
        except Exception:  # it ran before; that it does not now tells nothing of the numbers
            return True
        pairs = list(zip(first.curve, again.curve, strict=False))
        return all(abs(x - y) <= allowed * max(abs(x), abs(y)) for x, y in pairs)

    def _reference(
        self, workload: Workload, first: FirstSteps, step_s: float, left_s: float
    ) -> Reference:
        path = self._path(first)
        if (stored := _load(path)) is not None:
            return stored
        started = time.perf_counter()
        usable_s = left_s - SPARE_S
        slower = SLOWER_ON_CPU if self._device.type == "cpu" else SLOWER
        if usable_s < 2 * 2 * slower * step_s:  # two runs of two steps
            raise _UncheckedError("no time was left for the fp32 job (budget.minutes gives more)")
        cap_s = min(self._request.probe.window_s / 2, usable_s / 4)
        self._release()
        seed, steps = self._request.seed, self._request.numerics.steps
        plain, drawn = self._steps(workload, seed, steps, cap_s, usable_s / 4)
        if plain.weights != first.weights:
            raise _UncheckedError(
                "the model gets other weights each time it is built, with the same torch seed"
            )
        if usable_s < 2 * (time.perf_counter() - started):
            raise _UncheckedError("no time was left to run the fp32 job twice")
        self._release()
        moved = replace(workload, build_model=partial(_moved, workload.build_model))
        again, _ = self._steps(moved, seed + 1, len(plain.losses), left_s, left_s)
        found = Reference(
            losses=tuple(map(_finite, plain.losses)),
            again=tuple(map(_finite, again.losses)),
            gradient_norm=_finite(plain.gradient_norms[0]),
            gradient_norm_again=_finite(again.gradient_norms[0]),
            random=drawn,
        )
        _save(path, found)
        return found

    def _steps(
        self,
        workload: Workload,
        chance: int,
        steps: int,
        cap_s: float,
        end_s: float,
        settings: Settings | None = None,
    ) -> tuple[FirstSteps, bool]:
        """Train at most `steps` steps; one at least, more while the time lasts.

        The first step pays for much that comes once, and the loss before any step says little of
        the gradient: a second one is made even if that took all of `cap_s`.

        Returns:
            What they came to, and whether they drew random numbers.

        Args:
            workload: What is trained.
            chance: Seed of random numbers drawn in the steps.
            steps: Steps wanted.
            cap_s: Seconds after which no third step is begun.
            end_s: Seconds after which no second one is.
            settings: How; None for plain fp32.
        """
        batch_size, seed = self._request.settings.batch_size, self._request.seed
        plain = Settings(batch_size=batch_size, precision=Precision.FP32)
        job = TrainingJob(
            with_own_loss(workload), settings or plain, self._device, seed, watched_steps=steps
        )
        host = first_batch(workload, batch_size, self._samples, seed)
        if fingerprint(host) != self._batch:
            raise _UncheckedError(
                "data.collate makes another batch of the same samples, with the same torch seed"
            )
        batches = itertools.repeat(job.place(host))
        _seed(chance)
        before = _random_state(self._device)
        timer = HostTimer()
        started = time.perf_counter()
        for done in range(1, steps + 1):
            job.step(batches, timer)
            synchronize(self._device)
            if time.perf_counter() - started > (cap_s if done > 1 else max(cap_s, end_s)):
                break
        return job.first_steps(steps), _random_state(self._device) != before

    def _release(self) -> None:
        """Give back what a job that is gone held: compiled code, CUDA graphs, cached memory."""
        if self._request.settings.compile is not CompileMode.OFF:
            torch.compiler.reset()
        gc.collect()
        if self._device.type != "cpu":
            torch.accelerator.empty_cache()

    def _path(self, first: FirstSteps) -> Path:
        """Return the file for all that the reference depends on."""
        from pydantic import TypeAdapter

        request = self._request
        key = [
            TypeAdapter(WorkloadSpec).dump_json(request.workload).decode(),
            request.settings.batch_size,
            request.seed,
            str(self._device),
            torch.__version__,
            first.weights,
            self._batch,
            request.numerics.steps,
        ]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return Path(request.folder).parent / FOLDER / f"{name}.json"


def first_batch(workload: Workload, batch_size: int, samples: Sequence[Any], seed: int) -> Any:
    """Return the resident batch, and leave random numbers where they are the same each time.

    A collate may draw some (mixup), and so may reading the samples.
    """
    _seed(seed)
    batch = resident_batch(workload, batch_size, samples)
    _seed(seed)
    return batch


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def with_own_loss(workload: Workload) -> Workload:
    """Return the workload with a copy of its loss, which may count steps or hold weights."""
    try:
        return replace(workload, loss=copy.deepcopy(workload.loss))
    except Exception:  # whatever a user's class does when it is copied
        return workload


def _moved(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Return the model with each weight moved by up to one unit roundoff of bfloat16."""
    model = build()
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point():
                by = BF16_ROUNDOFF * (2 * torch.rand(weight.shape, generator=numbers) - 1)
                weight.mul_((1 + by).to(weight))
    return model


def _random_state(device: torch.device) -> tuple[Any, ...]:
    """Return where the generators of random numbers are: drawing moves one of them on."""
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    numbers = np.random.get_state(legacy=False)
    return random.getstate(), repr(numbers), *(bytes(state.tolist()) for state in states)


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _load(path: Path) -> Reference | None:
    """Return a stored reference; None where there is none that can be read."""
    from pydantic import TypeAdapter, ValidationError

    try:
        found = TypeAdapter(Reference).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    whole = found.losses and len(found.losses) == len(found.again)
    numbers = (*found.losses, *found.again, found.gradient_norm, found.gradient_norm_again)
    finite = all(number is None or math.isfinite(number) for number in numbers)
    return found if whole and finite else None


def _save(path: Path, reference: Reference) -> None:
    """Store a reference, whole or not at all; without it the next trial measures its own."""
    from pydantic import TypeAdapter

    with contextlib.suppress(OSError, OutputError):
        path.parent.mkdir(exist_ok=True)
        content = TypeAdapter(Reference).dump_json(reference)
        write_whole(path, content, todo="The next trial measures it again.")
