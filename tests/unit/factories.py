"""Made-up trials and studies for tests. Every value has a default; override what matters."""

from __future__ import annotations

import random
from dataclasses import replace

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
from autotune.result import (
    Arm,
    ArmResult,
    Confirmation,
    Role,
    StudyEnd,
    StudyResult,
    TrialRecord,
)
from autotune.settings import CompileMode, Precision, Settings
from autotune.statistics import Comparison, Estimate, Verdict, compare, geometric_mean_estimate

GPU = DeviceInfo("cuda", "NVIDIA H200", 150_000_000_000, "9.0", True, True)
CPU = DeviceInfo("cpu", "Some CPU", None, None, None, True)
ENVIRONMENT = Environment(
    platform="Linux-6.1-x86_64",
    python="3.11.7",
    cpu="Some CPU",
    usable_cpus=16,
    logical_cpus=64,
    memory_bytes=128 * 2**30,
    start_method="fork",
    packages={"torch": "2.14.1", "mlflow": "3.17.0"},
)
FACTS = JobFacts(
    device=GPU,
    dataset_size=1_281_167,
    parameters=25_557_032,
    image_input=True,
    resident=False,
    seconds_per_sample=0.001,
)
BASELINE = Settings(batch_size=32)
EXPERT = Settings(
    batch_size=256,
    num_workers=15,
    pin_memory=True,
    prefetch_factor=2,
    persistent_workers=True,
    precision=Precision.BF16,
    channels_last=True,
)
BEST = replace(EXPERT, batch_size=512, num_workers=16, compile=CompileMode.REDUCE_OVERHEAD)


def make_window(
    samples_per_s: float = 1000.0,
    batch_size: int = 32,
    *,
    steps: int = 40,
    stall_share: float = 0.5,
    stop: StopReason = StopReason.CONVERGED,
    spread: float = 0.02,
    seed: int = 0,
) -> Window:
    source = random.Random(seed)
    step_s = [batch_size / samples_per_s * (1 + source.gauss(0, spread)) for _ in range(steps)]
    data = [stall_share * step for step in step_s]
    rest = [step - wait for step, wait in zip(step_s, data, strict=True)]
    return Window(
        elapsed_s=sum(step_s),
        samples=batch_size * steps,
        step_s=tuple(step_s),
        phase_s={
            Phase.DATA: tuple(data),
            Phase.FORWARD: tuple(0.3 * value for value in rest),
            Phase.BACKWARD: tuple(0.6 * value for value in rest),
            Phase.OPTIMIZER: tuple(0.1 * value for value in rest),
        },
        stall_s=tuple(data),
        host_wait_s=tuple(0.8 * value for value in data),
        steps_per_block=4,
        stop=stop,
        unmet=None,
    )


def make_measurement(
    settings: Settings = BASELINE,
    samples_per_s: float = 1000.0,
    *,
    device: DeviceInfo = GPU,
    ceiling: float | None = None,
    trace: str | None = None,
    stall_share: float = 0.5,
    stop: StopReason = StopReason.CONVERGED,
    last_loss: float | None = 6.9,
) -> Measurement:
    on_gpu = device.kind != "cpu"
    return Measurement(
        settings=settings,
        device=device,
        window=make_window(samples_per_s, settings.batch_size, stall_share=stall_share, stop=stop),
        device_ceiling=None if ceiling is None else Estimate(ceiling),
        memory=MemoryUse(
            peak_allocated_bytes=20 * 2**30 if on_gpu else None,
            peak_reserved_bytes=23 * 2**30 if on_gpu else None,
            total_bytes=device.memory_bytes,
            alloc_retries=0 if on_gpu else None,
            host_peak_bytes=9 * 2**30,
        ),
        costs=Costs(
            start_s=0.5, setup_s=0.4, first_step_s=1.2, warmup_s=2.0, ceiling_s=1.0, window_s=4.0
        ),
        optimizer_steps=60,
        skipped_steps=None,
        last_loss=last_loss,
        trace=trace,
    )


def make_failure(
    settings: Settings = BEST,
    failure: FailureKind = FailureKind.OUT_OF_MEMORY,
    message: str = "CUDA out of memory. Tried to allocate 20.00 GiB",
) -> TrialFailure:
    return TrialFailure(
        settings=settings,
        failure=failure,
        message=message,
        stage="warm-up",
        evidence="Traceback ...",
        costs=Costs(start_s=0.5, setup_s=0.4),
    )


def make_trial(
    number: int = 0,
    role: Role = Role.SEARCH,
    outcome: Outcome | None = None,
    *,
    infeasible: str | None = None,
) -> TrialRecord:
    outcome = outcome if outcome is not None else make_measurement()
    feasible = isinstance(outcome, Measurement) and infeasible is None
    return TrialRecord(
        number=number,
        role=role,
        outcome=outcome,
        score=outcome.window.samples_per_s
        if feasible and isinstance(outcome, Measurement)
        else None,
        infeasible=infeasible,
        started_at=1_790_000_000.0 + 20 * number,
        total_s=9.5,
        folder=f"trials/{number:04d}",
    )


def make_confirmation(
    baseline: tuple[float, ...] = (420.0, 424.0, 418.0),
    best: tuple[float, ...] = (3390.0, 3420.0, 3402.0),
    expert: tuple[float, ...] | None = (2900.0, 2880.0, 2915.0),
) -> Confirmation:
    def result(arm: Arm, settings: Settings, rates: tuple[float, ...]) -> ArmResult:
        throughput = geometric_mean_estimate(rates)
        return ArmResult(arm=arm, settings=settings, rates=rates, throughput=throughput)

    def against(one: tuple[float, ...] | None, other: tuple[float, ...]) -> Comparison | None:
        return None if one is None else compare(one, other)

    arms = [result(Arm.BASELINE, BASELINE, baseline), result(Arm.BEST, BEST, best)]
    if expert is not None:
        arms.insert(1, result(Arm.EXPERT, EXPERT, expert))
    return Confirmation(
        arms=tuple(arms),
        versus_baseline=compare(best, baseline),
        versus_expert=None if expert is None else compare(best, expert),
        expert_versus_baseline=against(expert, baseline),
        rounds=len(baseline),
        process_spread=Estimate(0.08, 0.05, 0.15),
    )


def make_result(folder: str = "/runs/resnet50-1", **changes: object) -> StudyResult:
    """Return a study in which the best beat the baseline, with `changes` to its fields."""
    baseline = make_trial(
        0, Role.BASELINE, make_measurement(BASELINE, 420, ceiling=1150, stall_share=0.61)
    )
    expert = make_trial(1, Role.EXPERT, make_measurement(EXPERT, 2900, ceiling=4100))
    best = make_trial(2, outcome=make_measurement(BEST, 3450, ceiling=6390, trace="trace.json.gz"))
    failed = make_trial(3, outcome=make_failure(replace(BEST, batch_size=1024)))
    outraced = make_trial(
        4,
        outcome=make_measurement(
            replace(EXPERT, num_workers=1), 250, stop=StopReason.OUTRACED, stall_share=0.9
        ),
    )
    result = StudyResult(
        study="resnet50",
        folder=folder,
        model="resnet50",
        data="photos",
        environment=ENVIRONMENT,
        facts=FACTS,
        trials=(baseline, expert, best, failed, outraced),
        baseline=baseline,
        expert=expert,
        best=best,
        confirmation=make_confirmation(),
        verdict=Verdict.FASTER,
        recommended=BEST,
        ended=StudyEnd.MINUTES,
        elapsed_s=421.0,
        notes=("bf16 was left out on this device.",),
    )
    return replace(result, **changes)  # type: ignore[arg-type]
