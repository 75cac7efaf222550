"""What a trial gives back: a Measurement or a TrialFailure, typed and versioned.

Samples are kept and statistics derived from them. A value that could not be measured is None.
"""

from autotune.measurement.activity import DeviceActivity
from autotune.measurement.compilation import CompileReport
from autotune.measurement.costs import Costs
from autotune.measurement.facts import JobFacts
from autotune.measurement.failure import FailureKind, TrialFailure
from autotune.measurement.machine import MachineState, ThrottleReason
from autotune.measurement.measurement import Measurement
from autotune.measurement.memory import MemoryUse
from autotune.measurement.numerics import NumericsReport
from autotune.measurement.preflight import Finding, FindingCode, Preflight
from autotune.measurement.record import Outcome, Record, from_json, to_json
from autotune.measurement.version import SCHEMA_VERSION
from autotune.measurement.window import Phase, StopReason, Window

__all__ = [
    "SCHEMA_VERSION",
    "CompileReport",
    "Costs",
    "DeviceActivity",
    "FailureKind",
    "Finding",
    "FindingCode",
    "JobFacts",
    "MachineState",
    "Measurement",
    "MemoryUse",
    "NumericsReport",
    "Outcome",
    "Phase",
    "Preflight",
    "Record",
    "StopReason",
    "ThrottleReason",
    "TrialFailure",
    "Window",
    "from_json",
    "to_json",
]
