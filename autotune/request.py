"""What a trial's process is asked to do: plain values that travel to another process."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.config import NumericsConfig, ProbeConfig, WorkloadSpec
from autotune.settings import Settings


@dataclass(frozen=True, kw_only=True)
class PreflightScope:
    """What a study may try of a job, and so what has to be looked at before.

    Attributes:
        batch_sizes: Batch sizes that may be tried, ascending.
        max_workers: Most workers that may be tried.
        limit_s: Seconds that all checks may take; what has no time left is not checked.
    """

    batch_sizes: tuple[int, ...]
    max_workers: int
    limit_s: float


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """One trial to run.

    Attributes:
        workload: What is trained.
        settings: How.
        probe: How it is measured.
        device: auto, cpu, cuda or one device such as cuda:1.
        seed: Seed of weights and data order, the same for every trial of a study.
        folder: Absolute existing folder for the trial's log and trace.
        limit_s: Wall-clock limit in seconds; the process group is killed after it.
        race_against: Best throughput known, samples/s; the trial may stop once it is surely below.
            None: run to the end.
        measure_ceiling: Measure the device ceiling as well.
        profile_above: Record a trace when the throughput is at least this, samples/s; None: never.
        loader_above: Measure the loader ceiling when the throughput is at least this, samples/s;
            None: never.
        repeat_disturbed: Measure a window once more that the machine disturbed.
        numerics: How the numerics guard works.
        check_above: Hold the first losses against fp32 eager when the throughput is at least this,
            samples/s; None: never. Whether they are finite is looked at in any case.
        preflight: What to look at besides one plain step, in an inspection; None: nothing.
    """

    workload: WorkloadSpec
    settings: Settings
    probe: ProbeConfig
    device: str
    seed: int
    folder: str
    limit_s: float
    race_against: float | None = None
    measure_ceiling: bool = True
    profile_above: float | None = None
    loader_above: float | None = None
    repeat_disturbed: bool = True
    numerics: NumericsConfig = NumericsConfig()
    check_above: float | None = None
    preflight: PreflightScope | None = None
