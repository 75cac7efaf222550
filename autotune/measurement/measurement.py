"""What a probe saw of one setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.environment import DeviceInfo
from autotune.measurement.activity import DeviceActivity
from autotune.measurement.compilation import CompileReport
from autotune.measurement.costs import Costs
from autotune.measurement.memory import MemoryUse
from autotune.measurement.numerics import NumericsReport
from autotune.measurement.version import SCHEMA_VERSION
from autotune.measurement.window import Window
from autotune.settings import Settings
from autotune.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a probe saw of one setting.

    Attributes:
        settings: The settings that ran.
        device: Where they ran.
        window: The timed window; the score comes from it.
        device_ceiling: Throughput in samples/s with the same batch resident on the device, no
            loader; None where it was not measured.
        loader_ceiling: Throughput in samples/s of the loader alone, without training; None where it
            was not measured.
        launch_s: Seconds that the host needs to queue one resident step, the device not waited for;
            None on a CPU, and where the device ceiling was not measured.
        activity: What the device did in the profiled steps; None without a trace of a device.
        compilation: What torch.compile did; None where it is off.
        numerics: The guard's comparison with fp32 eager; None where it is switched off.
        repeated_windows: Windows measured again because the machine was disturbed.
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
    loader_ceiling: Estimate | None = None
    launch_s: float | None = None
    activity: DeviceActivity | None = None
    compilation: CompileReport | None = None
    numerics: NumericsReport | None = None
    repeated_windows: int = 0
    memory: MemoryUse
    costs: Costs
    optimizer_steps: int
    skipped_steps: int | None
    last_loss: float | None
    trace: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def samples_per_joule(self) -> float | None:
        """Samples trained in the window per joule that the device used; None without an energy."""
        return self.window.samples_per_joule
