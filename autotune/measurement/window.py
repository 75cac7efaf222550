"""What a timed window saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from autotune.measurement.machine import MachineState
from autotune.statistics import Estimate, block_means, mean_of_blocks, rate_estimate


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
        machine: The machine meanwhile; None where it was not watched.
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
    machine: MachineState | None = None

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

    @property
    def relative_error(self) -> float | None:
        """Standard error of the throughput as a share of it; None where there are too few blocks.

        It is the noise within the window only. Fresh processes differ by more.
        """
        found = mean_of_blocks(block_means(self.step_s, self.steps_per_block))
        return None if found is None else found.standard_error / found.mean

    def phase_ms(self, phase: Phase) -> float:
        """Return the mean milliseconds of a phase in a step."""
        return 1e3 * sum(self.phase_s[phase]) / self.steps

    @property
    def step_ms(self) -> float:
        """Mean milliseconds of a step."""
        return 1e3 * self.elapsed_s / self.steps

    @property
    def untimed_share(self) -> float:
        """Share of the window outside its steps, as the timer saw them: about 0.

        Below 0, the steps fill more than the window: the two clocks disagree.
        """
        return 1 - sum(self.step_s) / self.elapsed_s

    @property
    def samples_per_joule(self) -> float | None:
        """Samples trained per joule that the device used; None where it tells no energy."""
        energy_j = None if self.machine is None else self.machine.energy_j
        return self.samples / energy_j if energy_j else None

    @property
    def disturbances(self) -> tuple[str, ...]:
        """What may have made the window slower than the setting is; empty if nothing is known."""
        return () if self.machine is None else self.machine.disturbances

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
