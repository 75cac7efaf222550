"""A machine without a device: throughput by formula, time on a scripted clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autotune.config import Config, SpaceConfig
from autotune.environment import DeviceInfo, Environment
from autotune.measurement import (
    Costs,
    FailureKind,
    JobFacts,
    Measurement,
    MemoryUse,
    Outcome,
    Phase,
    StopReason,
    TrialFailure,
    Window,
)
from autotune.request import TrialRequest
from autotune.result import Arm, Role, TrialRecord
from autotune.settings import CompileMode, Precision, Settings
from autotune.tuner import StudyPlan

GPU = DeviceInfo("cuda", "Test GPU", 80 * 2**30, "9.0", native_bf16=True, compiler=True)
FACTS = JobFacts(
    device=GPU,
    dataset_size=50_000,
    parameters=1000,
    image_input=True,
    resident=False,
    seconds_per_sample=0.001,
)
STEPS = 8


class Clock:
    """A clock that only the launcher moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def plain_rate(settings: Settings) -> float:
    """Workers, a larger batch and bf16 help."""
    device = 1000.0 * min(settings.batch_size, 256) / 256
    if settings.precision is Precision.BF16:
        device *= 2
    loader = 100.0 * (1 + settings.num_workers)
    return min(device, loader)


def plain_cost_s(settings: Settings) -> float:
    return 40.0 if settings.compile is not CompileMode.OFF else 10.0


@dataclass
class FakeLauncher:
    """Answers from formulas.

    Attributes:
        clock: Moved by what a trial costs.
        rate: Throughput of settings, samples/s.
        cost_s: Seconds of a trial of settings.
        failure: Why settings fail; None when they do not.
        noise: Standard deviation of the logarithm of the throughput between processes.
        seed: Seed of that noise.
        surprise: Exception raised by the n-th run (counted from 0) instead of an answer.
        facts: What the first look tells.
    """

    clock: Clock = field(default_factory=Clock)
    rate: Callable[[Settings], float] = plain_rate
    cost_s: Callable[[Settings], float] = plain_cost_s
    failure: Callable[[Settings], FailureKind | None] = lambda settings: None
    noise: float = 0.0
    seed: int = 0
    surprise: dict[int, BaseException] = field(default_factory=dict)
    facts: JobFacts | TrialFailure = FACTS
    requests: list[TrialRequest] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    @property
    def ran(self) -> list[Settings]:
        return [request.settings for request in self.requests]

    def inspect(self, request: TrialRequest) -> JobFacts | TrialFailure:
        self.clock.now_s += 5
        return self.facts

    def run(self, request: TrialRequest, progress: Callable[[str], None]) -> Outcome:
        turn = len(self.requests)
        self.requests.append(request)
        progress("window")
        if turn in self.surprise:
            self.clock.now_s += 1
            raise self.surprise[turn]
        settings = request.settings
        cost_s = self.cost_s(settings)
        if cost_s > request.limit_s:
            self.clock.now_s += request.limit_s
            return failed(settings, FailureKind.TIME_LIMIT)
        if (kind := self.failure(settings)) is not None:
            self.clock.now_s += 2
            return failed(settings, kind)
        self.clock.now_s += cost_s
        rate = self.rate(settings) * math.exp(self._rng.gauss(0, self.noise))
        beaten = request.race_against is not None and rate < 0.5 * request.race_against
        return measured(settings, rate, StopReason.OUTRACED if beaten else StopReason.CONVERGED)

    def close(self) -> None:
        self.closed += 1


def measured(
    settings: Settings,
    rate: float,
    stop: StopReason = StopReason.CONVERGED,
    *,
    alloc_retries: int = 0,
    last_loss: float = 1.0,
) -> Measurement:
    step_s = settings.batch_size / rate
    steps = (step_s,) * STEPS
    return Measurement(
        settings=settings,
        device=GPU,
        window=Window(
            elapsed_s=STEPS * step_s,
            samples=STEPS * settings.batch_size,
            step_s=steps,
            phase_s={phase: tuple(step / 4 for step in steps) for phase in Phase},
            stall_s=(0.0,) * STEPS,
            host_wait_s=(0.0,) * STEPS,
            steps_per_block=1,
            stop=stop,
            unmet=None,
        ),
        device_ceiling=None,
        memory=MemoryUse(
            peak_allocated_bytes=2**30,
            peak_reserved_bytes=2**30,
            total_bytes=GPU.memory_bytes,
            alloc_retries=alloc_retries,
            host_peak_bytes=None,
        ),
        costs=Costs(),
        optimizer_steps=10,
        skipped_steps=None,
        last_loss=last_loss,
    )


def failed(settings: Settings, kind: FailureKind) -> TrialFailure:
    return TrialFailure(
        settings=settings, failure=kind, message=f"no {kind.value}", stage="window", evidence="here"
    )


def environment_stamp() -> Environment:
    return Environment(
        platform="Linux",
        python="3.12",
        cpu="Test CPU",
        usable_cpus=8,
        logical_cpus=8,
        memory_bytes=None,
        start_method="fork",
        packages={"torch": "2.9.0"},
    )


@dataclass
class Watcher:
    """Remembers what the tuner told."""

    plans: list[StudyPlan] = field(default_factory=list)
    started: list[tuple[Role, Settings, str]] = field(default_factory=list)
    bests: list[TrialRecord | None] = field(default_factory=list)
    confirmations: list[tuple[tuple[Arm, ...], int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def study_started(self, plan: StudyPlan) -> None:
        self.plans.append(plan)

    def trial_started(self, number: int, role: Role, settings: Settings, label: str) -> None:
        self.started.append((role, settings, label))

    def trial_progress(self, stage: str) -> None:
        assert stage == "window"

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        self.bests.append(best)

    def confirmation_started(self, arms: tuple[Arm, ...], rounds: int) -> None:
        self.confirmations.append((arms, rounds))

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class Logbook:
    """A tracker that remembers."""

    open: bool = False
    trials: list[TrialRecord] = field(default_factory=list)
    aborted: list[tuple[str, bool]] = field(default_factory=list)

    def start(self, study: str, folder: str, config: str, environment: Environment) -> None:
        self.open = True

    def log_trial(self, trial: TrialRecord) -> None:
        assert self.open, "a trial was logged before the parent run was opened"
        self.trials.append(trial)

    def finish(self, result: Any, artifacts: tuple[str, ...]) -> None:
        raise AssertionError("finishing the run is up to the caller")

    def abort(self, reason: str, *, killed: bool) -> None:
        self.aborted.append((reason, killed))

    def view(self) -> str | None:
        return None


SPACE = SpaceConfig(
    batch_size=(32, 64, 128, 256, 512),
    num_workers=(0, 2, 4, 8),
    prefetch_factor=(2, 4),
    precision=(Precision.DEFAULT, Precision.BF16),
    compile=(CompileMode.OFF, CompileMode.DEFAULT),
)


def make_config(space: SpaceConfig = SPACE, **sections: Any) -> Config:
    return Config(
        model={"_target_": "my.model"},
        data={"_target_": "my.data"},
        loss=None,
        optimizer={"_target_": "my.optimizer"},
        search_spaces={"any": space},
        **sections,
    )
