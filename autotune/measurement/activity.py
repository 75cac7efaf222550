"""What a device did in a few profiled steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DeviceActivity:
    """What a device did in a few profiled steps.

    The profiler slows the host, so shares of the time are upper bounds of the idling without it.

    Attributes:
        kernels_per_step: Kernels that ran in a step.
        kernel_ms: Milliseconds per step in which at least one kernel ran.
        copy_ms: Milliseconds per step of copies from the host to the device.
        copy_pinned: Whether those copies came from pinned memory; None where they differ or there
            are none.
    """

    kernels_per_step: float
    kernel_ms: float
    copy_ms: float
    copy_pinned: bool | None
