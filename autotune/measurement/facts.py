"""What one plain look at the job tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.environment import DeviceInfo
from autotune.measurement.machine import MachineState
from autotune.measurement.preflight import Preflight
from autotune.measurement.version import SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """What one plain look at the job tells, before any search.

    Attributes:
        device: Where trials will run.
        dataset_size: Samples in the dataset; None for a stream.
        parameters: Number of parameters of the model.
        image_input: Batches hold a 4-D floating tensor, so channels_last applies.
        resident: The data is one batch that stays on the device; no DataLoader is involved.
        fused_obeys_scaler: The optimizer's fused kernel can be used with a GradScaler.
        seconds_per_sample: Seconds of a plain eager step per sample, from a small batch.
        machine: What the machine did meanwhile; None where it was not watched.
        preflight: What else was found out about the job.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["facts"] = "facts"
    device: DeviceInfo
    dataset_size: int | None
    parameters: int
    image_input: bool
    resident: bool
    seconds_per_sample: float
    fused_obeys_scaler: bool = True
    machine: MachineState | None = None
    preflight: Preflight = Preflight()

    @property
    def samples(self) -> int | None:
        """Samples of a pass over the data; None for a stream that was not gone through whole."""
        if self.dataset_size is not None:
            return self.dataset_size
        return self.preflight.samples_per_pass
