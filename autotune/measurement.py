"""What a trial gives back: a Measurement or a TrialFailure, typed and versioned.

Samples are kept and statistics derived from them. A value that could not be measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Literal

from autotune.environment import DeviceInfo
from autotune.settings import Settings
from autotune.statistics import Estimate, rate_estimate

SCHEMA_VERSION: Literal[1] = 1


class Phase(StrEnum):
    """A part of a step. The phases of a step follow each other and fill it."""

    DATA = "data"
    """Next batch and its copy to the device."""
    FORWARD = "forward"
    """Model and loss."""
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    """Optimizer step and clearing of the gradients."""


class StopReason(StrEnum):
    """Why a timed window ended."""

    CONVERGED = "converged"
    """The interval was narrow enough."""
    TIME_CAP = "time_cap"
    """The window's time was up first."""
    OUTRACED = "outraced"
    """The whole interval lay below the best rate known."""


class FailureKind(StrEnum):
    """Closed list of why a trial has no measurement."""

    OUT_OF_MEMORY = "out_of_memory"
    COMPILE_FAILED = "compile_failed"
    UNSUPPORTED = "unsupported"
    NON_FINITE = "non_finite"
    DATASET_ERROR = "dataset_error"
    WORKER_DIED = "worker_died"
    TIME_LIMIT = "time_limit"
    CRASH = "crash"
    USER_ERROR = "user_error"
    BAD_SETTING = "bad_setting"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Window:
    """A timed window of training steps between two synchronisations.

    Attributes:
        elapsed_s: Seconds from the first synchronisation to the second, on the host's clock.
        samples: Samples trained in it, counted from the batches that arrived.
        step_s: Seconds of each step, on the device's clock (the host's on a CPU).
        phase_s: Seconds of each phase, one per step, on the same clock; they add up to `step_s`.
        stall_s: Seconds per step in which the device really waited for the next batch.
        host_wait_s: Seconds per step that `next(loader)` took on the host.
        steps_per_block: Steps in one block; a block spans a whole turn of the worker pool.
        stop: Why the window ended.
        unmet: The criterion that was not met when the time was up; None if all were met.
    """

    elapsed_s: float
    samples: int
    step_s: tuple[float, ...]
    phase_s: Mapping[Phase, tuple[float, ...]]
    stall_s: tuple[float, ...]
    host_wait_s: tuple[float, ...]
    steps_per_block: int
    stop: StopReason
    unmet: str | None

    @property
    def steps(self) -> int:
        """Number of optimizer steps in the window."""
        return len(self.step_s)

    @property
    def samples_per_s(self) -> float:
        """Throughput: samples over elapsed seconds."""
        return self.samples / self.elapsed_s

    @cached_property
    def throughput(self) -> Estimate:
        """Throughput in samples/s with its interval from block means."""
        spread = rate_estimate(self.step_s, self.samples / self.steps, self.steps_per_block)
        if spread.low is None or spread.high is None:
            return Estimate(self.samples_per_s)
        # The value is samples over elapsed; the blocks only give the width.
        scale = self.samples_per_s / spread.value
        return Estimate(self.samples_per_s, spread.low * scale, spread.high * scale, spread.level)

    def phase_ms(self, phase: Phase) -> float:
        """Return the mean milliseconds of a phase in a step."""
        return 1e3 * sum(self.phase_s[phase]) / self.steps

    @property
    def step_ms(self) -> float:
        """Mean milliseconds of a step."""
        return 1e3 * self.elapsed_s / self.steps

    @property
    def stall_share(self) -> float:
        """Share of the window in which the device waited for data, 0 to 1."""
        return min(1.0, sum(self.stall_s) / self.elapsed_s)

    @property
    def stall_ms(self) -> float:
        """Mean milliseconds per step in which the device waited for data."""
        return 1e3 * sum(self.stall_s) / self.steps

    @property
    def host_wait_ms(self) -> float:
        """Mean milliseconds per step that `next(loader)` took on the host."""
        return 1e3 * sum(self.host_wait_s) / self.steps


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Memory of a trial. Device figures are None on a CPU.

    Attributes:
        peak_allocated_bytes: Peak memory of tensors on the device.
        peak_reserved_bytes: Peak memory that the caching allocator held.
        total_bytes: Memory of the device.
        alloc_retries: Times that the allocator had to free its cache to go on.
        host_peak_bytes: Peak resident memory of the trial's process and its workers together.
    """

    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    total_bytes: int | None
    alloc_retries: int | None
    host_peak_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds that the parts of a trial took.

    Attributes:
        start_s: From the request to a process that runs, with the device ready.
        setup_s: Building dataset, model and optimizer.
        first_step_s: The first step: compile and cuDNN's search fall here; None if none ended.
        warmup_s: All steps before the window, the first one and the draining of the prefetched
            batches included.
        ceiling_s: The window with a resident batch.
        window_s: The timed window.
        profile_s: The profiled window, writing the trace included.
    """

    start_s: float | None = None
    setup_s: float | None = None
    first_step_s: float | None = None
    warmup_s: float | None = None
    ceiling_s: float | None = None
    window_s: float | None = None
    profile_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a probe saw of one setting.

    Attributes:
        settings: The settings that ran.
        device: Where they ran.
        window: The timed window; the score comes from it.
        device_ceiling: Throughput in samples/s with the same batch resident on the device, no
            loader; None where it was not measured.
        memory: Peak memory.
        costs: Seconds by part.
        optimizer_steps: Optimizer steps taken in the process, warm-up included.
        skipped_steps: Steps that GradScaler skipped in the window; None without one.
        last_loss: Loss of the last step of the window.
        trace: File name of the profiler trace in the trial's folder; None if there is none.
        notes: What a reader of the record should know, in words.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["measurement"] = "measurement"
    settings: Settings
    device: DeviceInfo
    window: Window
    device_ceiling: Estimate | None
    memory: MemoryUse
    costs: Costs
    optimizer_steps: int
    skipped_steps: int | None
    last_loss: float | None
    trace: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrialFailure:
    """Why a trial has no measurement.

    Attributes:
        settings: The settings that were to run.
        failure: The kind, from a closed list.
        message: What happened, in one or two lines; the user's own message where there is one.
        stage: What the trial was doing: start, setup, warm-up, ceiling, window or profile.
        evidence: Further text such as a traceback; None if there is none.
        costs: Seconds by part, as far as it came.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["failure"] = "failure"
    settings: Settings
    failure: FailureKind
    message: str
    stage: str
    evidence: str | None = None
    costs: Costs = Costs()


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """What one plain look at the job tells, before any search.

    Attributes:
        device: Where trials will run.
        dataset_size: Samples in the dataset; None for a stream.
        parameters: Number of parameters of the model.
        image_input: Batches hold a 4-D floating tensor, so channels_last applies.
        resident: The data is one batch that stays on the device; no DataLoader is involved.
        seconds_per_sample: Seconds of a plain eager step per sample, from a small batch.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["facts"] = "facts"
    device: DeviceInfo
    dataset_size: int | None
    parameters: int
    image_input: bool
    resident: bool
    seconds_per_sample: float


Outcome = Measurement | TrialFailure
"""What a trial ends in."""

Record = Measurement | TrialFailure | JobFacts
"""What a trial's process may send back."""


def to_json(record: Record) -> str:
    """Return a record as one line of JSON."""
    from pydantic import TypeAdapter

    return TypeAdapter(type(record)).dump_json(record).decode()


def from_json(text: str | bytes) -> Record:
    """Return the record that `to_json` wrote, checked against its types.

    Raises:
        ValueError: The text is not such a record, or has another schema version.
    """
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Record] = TypeAdapter(Record)
    return adapter.validate_json(text)
