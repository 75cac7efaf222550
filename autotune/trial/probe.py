"""The probe: the short run that measures one setting.

First the same batch over and over, resident on the device: compile and cuDNN's search end here,
and its rate is the device ceiling. Then the loader: the batches that it prepared ahead are drained,
and the timed window gives the score. Then, and only if asked, a few steps under the profiler, and
the loader alone. Last, with the job gone, the numerics guard: the first losses beside those of the
plain fp32 job.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autotune.loader import build_loader, endless, resident_samples
from autotune.measure.compilation import CompileObserver, compile_notes
from autotune.measure.device import device_info, memory_use, synchronize
from autotune.measure.launch import queueing_s
from autotune.measure.machine import MachineWatch
from autotune.measure.timers import make_timer
from autotune.measure.trace import record_trace
from autotune.measure.window import StopRule, run_window, steps_per_block
from autotune.measurement import Costs, DeviceActivity, Measurement, NumericsReport, Window
from autotune.request import TrialRequest
from autotune.settings import CompileMode
from autotune.statistics import Estimate
from autotune.trial.first_steps import FirstSteps
from autotune.trial.guard import NumericsGuard, first_batch
from autotune.trial.job import TrainingJob
from autotune.trial.judge import judge_alone
from autotune.trial.loading import drain, loader_window
from autotune.workloads.batch import fingerprint
from autotune.workloads.workload import Workload

RESIDENT_WARMUP_STEPS = 3
"""Steps after the first one before anything is timed: CUDA graphs run eagerly once, record once
and replay from the third call on."""

HOPELESS = 0.7
"""A device ceiling below this share of the best rate shortens the window to a quarter. Ceilings
are noisy estimates (measured on a ResNet-50 grid: 9 of 86 were passed, by up to 36 %), so such a
trial is still measured, only for less long."""

PHASES_AGREE_WITHIN = 0.01
"""Largest share of a window that its steps may leave out, or have too much, before the record says
so. On an H200 it was 0.3 % at most, where the host was late to see the end of a window."""

REPEAT_ROOM = 2.0
"""Windows as long as the disturbed one that must fit into the rest of the trial's time for it to be
measured again: the second one, which may take somewhat longer, and what follows it."""

TRACE_FILE = "trace.json.gz"

Stage = Callable[[str], None]


class Probe:
    """Measures one request; keeps the seconds by part as it goes, also for a trial that fails.

    Args:
        request: What to measure.
        device: Where.
        start_s: Seconds from the request to a process with its device ready.
        stage: Told what the probe is doing.
    """

    def __init__(
        self, request: TrialRequest, device: torch.device, start_s: float, stage: Stage
    ) -> None:
        self._request = request
        self._device = device
        self._stage = stage
        self._seconds: dict[str, float] = {"start_s": start_s}
        self._notes: list[str] = []
        self._launch_s: float | None = None
        self._activity: DeviceActivity | None = None
        self._batches: Iterator[Any] = iter(())  # kept: letting go of it waits for the workers
        self._sync = partial(synchronize, device)
        self._began_s = time.perf_counter() - start_s
        self._watch = MachineWatch(device)
        self._repeated = 0
        self._guard: NumericsGuard | None = None
        self._first: FirstSteps | None = None
        mode = request.settings.compile
        self._compiling = None if mode is CompileMode.OFF else CompileObserver(mode, device)

    @property
    def costs(self) -> Costs:
        """Seconds by part so far."""
        return Costs(**self._seconds)

    def run(self, workload: Workload) -> Measurement:
        """Measure and return the record. Whatever the job raises comes out as it is."""
        measurement = self._measured(workload)  # the job is gone then, and its memory free
        return self._checked(workload, measurement)

    def _measured(self, workload: Workload) -> Measurement:
        request, watched = self._request, self._request.numerics.watched_steps
        started = time.perf_counter()
        job = TrainingJob(workload, request.settings, self._device, request.seed, watched)
        samples = resident_samples(workload, request.settings.batch_size)
        host = first_batch(workload, request.settings.batch_size, samples, request.seed)
        if watched:
            self._guard = NumericsGuard(request, self._device, samples, fingerprint(host))
        resident = job.place(host)
        del host
        self._seconds["setup_s"] = time.perf_counter() - started
        step_s = self._warm_up(job, resident)
        ceiling = self._ceiling(job, resident, step_s)
        if watched:
            self._first = job.first_steps(min(watched, job.steps_taken))
        if workload.resident:
            return self._timed(job, itertools.repeat(resident), step_s, ceiling)
        del resident
        loader = build_loader(workload, request.settings, seed=request.seed)
        self._batches = endless(loader)
        step_s = self._drain(job, self._batches)
        measured = self._timed(job, self._batches, step_s, ceiling)
        return self._with_loader_alone(measured, self._batches)

    def _warm_up(self, job: TrainingJob, resident: Any) -> float:
        """Run the first steps on a resident batch; return the seconds of the last one."""
        compiling = self._compiling is not None
        self._stage("compile" if compiling else "warm-up")
        repeated = itertools.repeat(resident)
        started = time.perf_counter()
        step_s = first_s = self._one_step(job, repeated)
        self._seconds["first_step_s"] = first_s
        for _ in range(RESIDENT_WARMUP_STEPS):
            if not compiling and step_s > self._request.probe.ceiling_s:
                break  # steps this slow are not about launches and caches
            step_s = self._one_step(job, repeated)
        self._seconds["warmup_s"] = time.perf_counter() - started
        if self._compiling is not None:
            self._compiling.warmed_up(first_s, step_s)
        return step_s

    def _one_step(self, job: TrainingJob, batches: Iterator[Any]) -> float:
        timer = make_timer(self._device)
        started = time.perf_counter()
        timer.begin()
        job.step(batches, timer)
        self._sync()
        return time.perf_counter() - started

    def _ceiling(self, job: TrainingJob, resident: Any, step_s: float) -> Estimate | None:
        """Return the throughput with the batch resident on the device, or None if not asked for."""
        probe = self._request.probe
        if not self._request.measure_ceiling:
            return None
        self._stage("ceiling")
        started = time.perf_counter()
        window = run_window(
            partial(job.step, itertools.repeat(resident)),
            timer=make_timer(self._device),
            rule=StopRule(
                rel_halfwidth=probe.rel_halfwidth,
                cap_s=probe.ceiling_s,
                min_blocks=probe.min_blocks,
                min_steps=2,
                steps_per_block=steps_per_block(0, step_s),
            ),
            synchronize=self._sync,
        )
        if self._device.type != "cpu":
            self._launch_s = queueing_s(
                partial(job.step, itertools.repeat(resident), make_timer(self._device)),
                synchronize=self._sync,
                cap_s=probe.ceiling_s,
            )
        self._seconds["ceiling_s"] = time.perf_counter() - started
        return window.throughput

    def _drain(self, job: TrainingJob, batches: Iterator[Any]) -> float:
        """Start the loader and use up what it prepares ahead; return a typical step's seconds."""
        self._stage("warm-up")
        started = time.perf_counter()
        drained = drain(
            partial(job.step, batches),
            timer=make_timer(self._device),
            settings=self._request.settings,
            cap_s=self._request.probe.warmup_s,
            synchronize=self._sync,
        )
        self._seconds["warmup_s"] += time.perf_counter() - started
        if not drained.complete:
            self._notes.append(
                f"the window began after {drained.batches} batches, with others that the workers "
                "had prepared ahead not used up yet (probe.warmup_s): it may flatter the loader"
            )
        return drained.step_s

    def _timed(
        self,
        job: TrainingJob,
        batches: Iterator[Any],
        step_s: float,
        ceiling: Estimate | None,
    ) -> Measurement:
        request, steps_before = self._request, job.steps_taken
        self._stage("window")
        started = time.perf_counter()
        run = partial(self._window, job, batches, self._rule(step_s, ceiling))
        window = self._undisturbed(partial(self._without_compiling, run))
        self._seconds["window_s"] = time.perf_counter() - started
        compilation = None if self._compiling is None else self._compiling.report()
        if compilation is not None:
            self._notes += compile_notes(compilation)
        if abs(window.untimed_share) > PHASES_AGREE_WITHIN:
            self._notes.append(
                f"the phases sum up to {1 - window.untimed_share:.1%} of the window: take them, "
                "and the waiting for data, for no more exact than that"
            )
        memory = memory_use(self._device)
        loss = job.loss_value()
        skipped = job.skipped_steps(steps_before)
        trace = self._profiled(job, batches, window)
        return Measurement(
            settings=request.settings,
            device=device_info(self._device),
            window=window,
            device_ceiling=ceiling,
            launch_s=self._launch_s,
            activity=self._activity,
            repeated_windows=self._repeated,
            compilation=compilation,
            memory=memory,
            costs=self.costs,
            optimizer_steps=job.steps_taken,
            numerics=self._numerics(job, window, skipped),
            skipped_steps=skipped,
            last_loss=loss,
            trace=trace,
            notes=tuple(self._notes),
        )

    def _window(self, job: TrainingJob, batches: Iterator[Any], rule: StopRule) -> Window:
        if self._compiling is not None:
            self._compiling.window_begins()
        return run_window(
            partial(job.step, batches),
            timer=make_timer(self._device),
            rule=rule,
            synchronize=self._sync,
            watch=self._watch,
        )

    def _without_compiling(self, run: Callable[[], Window]) -> Window:
        """Return a window; the second one, if there was compiling in the first.

        What was compiled in the first is there for the second, so the first was the warm-up that
        was still missing; a longer warm-up beforehand would have had to guess for how long. A job
        that goes on compiling does so in training too, so the second one stands as it is.
        """
        window = run()
        if self._compiling is None or not self._compiling.window_ended():
            return window
        self._notes.append(
            "the window was measured again, as there was compiling in the first one: "
            + "; ".join(self._compiling.reasons_in_window)
        )
        window = run()
        self._compiling.window_ended()
        return window

    def _undisturbed(self, measure: Callable[[], Window]) -> Window:
        """Return a window; of two, if the machine disturbed the first, the less disturbed one.

        Which one is kept is up to the machine's state alone. Keeping the faster one would let
        chance flatter the settings that are measured twice.
        """
        window = measure()
        if not window.disturbances:
            return window
        left_s = self._request.limit_s - (time.perf_counter() - self._began_s)
        if self._request.repeat_disturbed and left_s >= REPEAT_ROOM * window.elapsed_s:
            self._repeated += 1
            again = measure()
            if not again.disturbances:
                self._notes.append(
                    "the window is the second one; the first was disturbed: "
                    f"{'; '.join(window.disturbances)}"
                )
                return again
            window = min(window, again, key=_lost_share)
        self._notes.append(
            f"the window was disturbed: {'; '.join(window.disturbances)}. "
            "The settings may be faster on a quiet machine"
        )
        return window

    def _numerics(
        self, job: TrainingJob, window: Window, skipped: int | None
    ) -> NumericsReport | None:
        if self._first is None:
            return None
        return judge_alone(
            self._first,
            parameters_finite=job.parameters_finite(),
            window_steps=window.steps,
            window_skipped=skipped,
        )

    def _checked(self, workload: Workload, measurement: Measurement) -> Measurement:
        """Return the measurement with the guard's comparison, where it is worth its time."""
        alone, above = measurement.numerics, self._request.check_above
        if alone is None or self._guard is None or self._first is None:
            return measurement
        if alone.failed is not None or alone.unchecked is not None:
            return measurement
        if above is None or measurement.window.samples_per_s < above:
            why = "not asked for" if above is None else "clearly slower than the best known"
            return replace(measurement, numerics=replace(alone, unchecked=why))
        self._stage("numerics")
        started = time.perf_counter()
        report = self._guard.check(
            workload,
            alone,
            self._first,
            step_s=measurement.window.step_ms / 1e3,
            left_s=self._request.limit_s - (started - self._began_s),
        )
        self._seconds["guard_s"] = time.perf_counter() - started
        return replace(measurement, numerics=report, costs=self.costs)

    def _rule(self, step_s: float, ceiling: Estimate | None) -> StopRule:
        probe, best = self._request.probe, self._request.race_against
        hopeless = ceiling is not None and best is not None and ceiling.value < HOPELESS * best
        return StopRule(
            rel_halfwidth=probe.rel_halfwidth,
            cap_s=probe.window_s / 4 if hopeless else probe.window_s,
            min_blocks=probe.min_blocks,
            min_steps=probe.min_steps,
            steps_per_block=steps_per_block(self._request.settings.num_workers, step_s),
            race_against=best,
        )

    def _profiled(self, job: TrainingJob, batches: Iterator[Any], window: Window) -> str | None:
        """Record a trace if asked for; return its file name. A failing profile is a note."""
        probe, above = self._request.probe, self._request.profile_above
        if above is None or window.samples_per_s < above:
            return None
        self._stage("profile")
        started = time.perf_counter()
        # Slow steps need no crowd: what repeats is visible in one.
        steps = max(1, min(probe.profile_steps, int(probe.window_s / 2 / (window.step_ms / 1e3))))
        trace = record_trace(
            partial(job.step, batches),
            device=self._device,
            steps=steps,
            file=Path(self._request.folder) / TRACE_FILE,
            max_bytes=probe.trace_max_mb * 1e6,
        )
        self._seconds["profile_s"] = time.perf_counter() - started
        self._activity = trace.activity
        if trace.note is not None:
            self._notes.append(trace.note)
        return None if trace.file is None else trace.file.name

    def _with_loader_alone(self, measured: Measurement, batches: Iterator[Any]) -> Measurement:
        """Add the loader ceiling if asked for: the same loader goes on, its batches are dropped.

        It comes last, since it leaves the queues emptier than training does. The score stands even
        where the loader fails now.
        """
        above, probe = self._request.loader_above, self._request.probe
        if above is None or measured.window.samples_per_s < above:
            return measured
        if measured.window.step_ms / 1e3 > probe.loader_ceiling_s:
            return measured  # a few batches, which the loader may need as long for, tell nothing
        self._stage("loader ceiling")
        started = time.perf_counter()
        ceiling: Estimate | None = None
        try:
            window, drained = loader_window(
                batches,
                settings=self._request.settings,
                rel_halfwidth=probe.rel_halfwidth,
                min_blocks=probe.min_blocks,
                cap_s=probe.loader_ceiling_s,
            )
        except Exception as error:  # whatever the user's dataset raises
            self._notes.append(f"no loader ceiling: {type(error).__name__}: {error}")
        else:
            ceiling = window.throughput
            if not drained.complete:
                self._notes.append(
                    f"the loader alone was timed after {drained.batches} batches, with others that "
                    "its workers had prepared ahead not used up (probe.loader_ceiling_s): its "
                    "ceiling may be too high"
                )
        self._seconds["loader_ceiling_s"] = time.perf_counter() - started
        return replace(measured, loader_ceiling=ceiling, costs=self.costs, notes=tuple(self._notes))


def _lost_share(window: Window) -> float:
    return 0.0 if window.machine is None else window.machine.lost_share
