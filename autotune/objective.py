"""What is maximised, and what rules a measured setting out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autotune.measurement import Measurement
from autotune.settings import Settings

MEMORY_HEADROOM = 0.92
"""Largest share of the device's memory that the allocator may hold. Above it, the first wider
batch, a validation pass or a neighbour ends the job (Lightning issues 8028 and 9625)."""

NO_ENERGY = "the device did not tell the energy of the window"
NO_FIRST_STEP = "the first step was not timed"
UNSCORED = (NO_ENERGY, NO_FIRST_STEP)
"""Why a measurement has no score, though nothing speaks against its settings."""


@dataclass(frozen=True, kw_only=True)
class StartUp:
    """What a run of a setting pays once, before it trains at its pace.

    Attributes:
        seconds: Seconds of the first step: compiling and cuDNN's search fall here.
        cold: Whether those are of a cold compile cache, as in a fresh run on a fresh machine; None
            where nothing is compiled, or torch does not tell.
    """

    seconds: float
    cold: bool | None


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is maximised. The default is plain throughput.

    - `throughput`: samples over seconds, samples/s.
    - `throughput` with `planned_samples`: those over the seconds that the whole training takes,
      the start-up included, samples/s. It is below the plain throughput always.
    - `energy`: samples over the joules that the device used in the window, samples/J. What the
      rest of the machine used is not in it.

    Attributes:
        metric: throughput or energy.
        planned_samples: Samples that the user is going to train on; None charges no start-up.
    """

    metric: str = "throughput"
    planned_samples: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the score is the throughput itself."""
        return self.metric == "throughput" and self.planned_samples is None

    @property
    def key(self) -> str:
        """Name of the score as a metric, with its unit."""
        if self.metric == "energy":
            return "samples_per_joule"
        return "samples_per_s" if self.planned_samples is None else "planned_samples_per_s"

    @property
    def unit(self) -> str:
        """Unit of the score."""
        if self.metric == "energy":
            return "samples/J"
        return "samples/s" if self.planned_samples is None else "planned samples/s"

    @property
    def name(self) -> str:
        """What the score is, in words, as in `2 x your samples per second`."""
        if self.metric == "energy":
            return "samples per joule"
        if self.planned_samples is None:
            return "samples per second"
        return f"samples per second over {self.planned_samples:,} samples with the start-up"

    def lacking(self, measurement: Measurement) -> str | None:
        """Return what the score needs and the measurement does not have, or None."""
        if self.metric == "energy" and not _joules(measurement):
            return NO_ENERGY
        if self.planned_samples is not None and measurement.costs.first_step_s is None:
            return NO_FIRST_STEP
        return None

    def score(self, measurement: Measurement, seen: Iterable[Measurement] = ()) -> float:
        """Return the score of a measurement; higher is better.

        Args:
            measurement: What is scored.
            seen: What else the study measured; see `start_up`.

        Raises:
            ValueError: The measurement lacks something; see `lacking`.
        """
        if (lacking := self.lacking(measurement)) is not None:
            raise ValueError(lacking)
        window = measurement.window
        if self.metric == "energy" and (joules := _joules(measurement)):
            return window.samples / joules
        once = start_up(measurement, seen)
        if self.planned_samples is None or once is None:
            return window.samples_per_s
        steady_s = self.planned_samples / window.samples_per_s
        return self.planned_samples / (steady_s + once.seconds)

    def race_against(self, best: float | None) -> float | None:
        """Return the throughput below which a trial surely cannot win, samples/s; None for none.

        A start-up only lowers a score below the throughput, so a throughput below the best score
        has lost. Energy is not known from the throughput: no race.

        Args:
            best: Best score known; None while there is none.
        """
        return None if self.metric == "energy" else best


def _joules(measurement: Measurement) -> float | None:
    machine = measurement.window.machine
    return None if machine is None else machine.energy_j


def start_up(measurement: Measurement, seen: Iterable[Measurement] = ()) -> StartUp | None:
    """Return what a fresh run of these settings pays once, or None where it was not timed.

    Args:
        measurement: Of the settings.
        seen: What else the study measured; see `coldest`.
    """
    fresh = coldest(measurement, seen)
    if fresh.costs.first_step_s is None:
        return None
    cold = fresh.compilation.cold if fresh.compilation is not None else None
    return StartUp(seconds=fresh.costs.first_step_s, cold=cold)


def coldest(measurement: Measurement, seen: Iterable[Measurement] = ()) -> Measurement:
    """Return the measurement that tells what a fresh run of these settings pays at its start.

    A trial may have found its graphs in the cache, which an earlier one filled. The longest first
    step with a cold cache of the same program counts then, so that two trials of one setting do not
    differ by who came first; without one, the trial's own.

    Args:
        measurement: Of the settings.
        seen: What else the study measured.
    """
    if measurement.compilation is None:
        return measurement
    program = program_of(measurement.settings)
    cold = [
        each
        for each in (measurement, *seen)
        if each.compilation is not None
        and each.compilation.cold
        and program_of(each.settings) == program
    ]
    return max(cold, key=lambda each: each.costs.first_step_s or 0.0, default=measurement)


def program_of(settings: Settings) -> Settings:
    """Return the settings without what says how data is loaded: equal ones compile to the same."""
    return replace(
        settings, num_workers=0, pin_memory=False, prefetch_factor=None, persistent_workers=False
    )


def infeasible(measurement: Measurement) -> str | None:
    """Return why a measured setting must not be used, or None when it may."""
    numerics = measurement.numerics
    return (
        lacks_memory(measurement)
        or (numerics.failed if numerics is not None else None)
        or not_compiled(measurement)
    )


def not_compiled(measurement: Measurement) -> str | None:
    """Return why a setting that compiles was measured eagerly, or None where it was not.

    Its speed is that of compile=off, and in a run its name would promise more.
    """
    found = measurement.compilation
    if found is None or found.not_compiled is None:
        return None
    return f"not compiled, with compile={measurement.settings.compile}: {found.not_compiled}"


def lacks_memory(measurement: Measurement) -> str | None:
    """Return why a measured setting uses too much memory, or None when it does not.

    Allocator retries mean that the setting lives at the limit and pays for it in speed. The peak
    holds what a run holds: the optimizer's state, the widest batch seen and, where it was tried,
    the last batch of a pass.
    """
    memory = measurement.memory
    if memory.oom_count:
        return f"the device ran out of memory ({memory.oom_count} x), and the job went on"
    if memory.alloc_retries:
        return f"the allocator ran out of memory and retried {memory.alloc_retries} times"
    if memory.peak_reserved_bytes is not None and memory.total_bytes:
        share = memory.peak_reserved_bytes / memory.total_bytes
        if share > MEMORY_HEADROOM:
            return (
                f"{share:.0%} of device memory reserved, optimizer state and the widest batch seen "
                f"included; at most {MEMORY_HEADROOM:.0%} is safe"
            )
    return None
