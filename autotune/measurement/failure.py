"""Why a trial has no measurement."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from autotune.measurement.costs import Costs
from autotune.measurement.version import SCHEMA_VERSION
from autotune.settings import Settings


class FailureKind(StrEnum):
    """Closed list of why a trial has no measurement."""

    OUT_OF_MEMORY = "out_of_memory"
    COMPILE_FAILED = "compile_failed"
    UNSUPPORTED = "unsupported"
    NON_FINITE = "non_finite"
    DATASET_ERROR = "dataset_error"
    WORKER_DIED = "worker_died"
    HANG = "hang"
    """No progress for `probe.hang_s`, though the time limit was not reached."""
    TIME_LIMIT = "time_limit"
    CRASH = "crash"
    USER_ERROR = "user_error"
    BAD_SETTING = "bad_setting"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class TrialFailure:
    """Why a trial has no measurement.

    Attributes:
        settings: The settings that were to run.
        failure: The kind, from a closed list.
        message: What happened, in one or two lines; the user's own message where there is one.
        stage: What the trial was doing: start, setup, warm-up, ceiling, window, tail batch,
            profile, loader ceiling or numerics.
        setting: Name of the setting whose value alone is to blame, where the trial could tell: an
            optimizer without a fused kernel, a dataset that cannot be sent to workers.
        evidence: Further text such as a traceback; None if there is none.
        costs: Seconds by part, as far as it came.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["failure"] = "failure"
    settings: Settings
    failure: FailureKind
    message: str
    stage: str
    setting: str | None = None
    evidence: str | None = None
    costs: Costs = Costs()
