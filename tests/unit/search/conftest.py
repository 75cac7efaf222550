from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autotune.environment import DeviceInfo
from autotune.measurement import (
    Costs,
    FailureKind,
    JobFacts,
    Measurement,
    MemoryUse,
    NumericsReport,
    Phase,
    StopReason,
    TrialFailure,
    Window,
)
from autotune.result import Role, TrialRecord
from autotune.settings import Settings

CUDA = DeviceInfo("cuda", "Test GPU", 100, "9.0", native_bf16=True, compiler=True)
CPU = DeviceInfo("cpu", "Test CPU", None, None, native_bf16=True, compiler=True)


@pytest.fixture
def make_facts() -> Callable[..., JobFacts]:
    def make(kind: str = "cuda", **changes: Any) -> JobFacts:
        values: dict[str, Any] = {
            "device": CUDA if kind == "cuda" else CPU,
            "dataset_size": 50_000,
            "parameters": 10,
            "image_input": True,
            "resident": False,
            "seconds_per_sample": 0.0001,
        }
        return JobFacts(**values | changes)

    return make


@pytest.fixture
def make_failure() -> Callable[..., TrialRecord]:
    def make(
        settings: Settings, kind: FailureKind, number: int = 0, stage: str = "window"
    ) -> TrialRecord:
        outcome = TrialFailure(settings=settings, failure=kind, message="why", stage=stage)
        return _record(outcome, None, None, number)

    return make


@pytest.fixture
def make_measured() -> Callable[..., TrialRecord]:
    def make(
        settings: Settings,
        score: float = 100.0,
        *,
        number: int = 0,
        stop: StopReason = StopReason.CONVERGED,
        alloc_retries: int = 0,
        last_loss: float | None = 1.0,
        infeasible: str | None = None,
        numerics: NumericsReport | None = None,
    ) -> TrialRecord:
        outcome = Measurement(
            settings=settings,
            device=CUDA,
            window=Window(
                elapsed_s=settings.batch_size / score,
                samples=settings.batch_size,
                step_s=(settings.batch_size / score,),
                phase_s={phase: (0.0,) for phase in Phase},
                stall_s=(0.0,),
                host_wait_s=(0.0,),
                steps_per_block=1,
                stop=stop,
                unmet=None,
            ),
            device_ceiling=None,
            memory=MemoryUse(
                peak_allocated_bytes=1,
                peak_reserved_bytes=1,
                total_bytes=100,
                alloc_retries=alloc_retries,
                host_peak_bytes=None,
            ),
            costs=Costs(),
            optimizer_steps=1,
            skipped_steps=None,
            last_loss=last_loss,
            numerics=numerics,
        )
        return _record(outcome, None if infeasible else score, infeasible, number)

    return make


def _record(
    outcome: Measurement | TrialFailure, score: float | None, infeasible: str | None, number: int
) -> TrialRecord:
    return TrialRecord(
        number=number,
        role=Role.SEARCH,
        outcome=outcome,
        score=score,
        infeasible=infeasible,
        started_at=0.0,
        total_s=1.0,
        folder=f"trials/{number:04d}",
    )
