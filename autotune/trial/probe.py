"""The probe: the short run that measures one setting.

First the same batch over and over, resident on the device: compile and cuDNN's search end here,
and its rate is the device ceiling. Then the loader: the batches that it prepared ahead are drained,
and the timed window gives the score; a step on the last, partial batch of a pass follows, where
there is one. From here on the score stands, whatever happens. What comes last, and only if asked
for: a few steps under the profiler, the loader alone, and, with the job gone, the numerics guard:
the first losses beside those of the plain fp32 job.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autotune.loader import build_loader, endless, resident_batch, resident_samples
from autotune.measure.compilation import CompileObserver, compile_notes
from autotune.measure.device import device_info
from autotune.measure.memory import memory_use
from autotune.measure.timers import make_timer
from autotune.measure.trace import record_trace
from autotune.measurement import Costs, Measurement, MemoryUse, Window
from autotune.request import TrialRequest
from autotune.settings import CompileMode
from autotune.trial.batch_sizes import BatchSizes
from autotune.trial.bench import Bench, Stage
from autotune.trial.first_steps import FirstSteps
from autotune.trial.guard import NumericsGuard, first_batch, with_own_loss
from autotune.trial.job import TrainingJob
from autotune.trial.judge import judge_alone
from autotune.trial.loading import drain, loader_window
from autotune.trial.pulse import Pulse
from autotune.trial.resident import Ceiling, measure_ceiling, warm_up
from autotune.trial.score import Score
from autotune.trial.tail import blamed_on_the_tail, tail_samples, train_tail, untried_note
from autotune.workloads.batch import fingerprint
from autotune.workloads.workload import Workload

DRAIN_ROOM = 0.4
"""Share of a trial's remaining time that draining its loader may take."""

TRACE_FILE = "trace.json.gz"

Scored = Callable[[Measurement], None]


class Probe:
    """Measures one request; keeps the seconds by part as it goes, also for a trial that fails.

    Args:
        request: What to measure.
        device: Where.
        start_s: Seconds from the request to a process with its device ready.
        stage: Told what the probe is doing.
        scored: Given the measurement as soon as its score stands, and again with each extra.
        pulse: Told of each step; None for nobody.
    """

    def __init__(
        self,
        request: TrialRequest,
        device: torch.device,
        start_s: float,
        stage: Stage,
        scored: Scored = lambda measurement: None,
        pulse: Pulse | None = None,
    ) -> None:
        self._bench = Bench(request, device, start_s, stage)
        self._scored = scored
        self._pulse = pulse
        self._batches: Iterator[Any] = iter(())  # kept: letting go of it waits for the workers
        self._sizes = BatchSizes()
        self._guard: NumericsGuard | None = None
        self._first: FirstSteps | None = None
        mode = request.settings.compile
        self._compiling = None if mode is CompileMode.OFF else CompileObserver(mode, device)

    @property
    def costs(self) -> Costs:
        """Seconds by part so far."""
        return self._bench.costs

    def run(self, workload: Workload) -> Measurement:
        """Measure and return the record. Whatever the job raises comes out as it is."""
        untouched = with_own_loss(workload)
        measurement = self._measured(workload)  # the job is gone then, and its memory free
        return self._checked(untouched, measurement)

    def _measured(self, workload: Workload) -> Measurement:
        bench = self._bench
        request, watched = bench.request, bench.request.numerics.watched_steps
        with bench.part("setup_s"):
            job = TrainingJob(
                workload, request.settings, bench.device, request.seed, watched, self._pulse
            )
            samples = resident_samples(workload, request.settings.batch_size)
            host = first_batch(workload, request.settings.batch_size, samples, request.seed)
            if watched:
                self._guard = NumericsGuard(request, bench.device, samples, fingerprint(host))
            resident = job.place(host)
            del host
        step_s = warm_up(bench, job, resident, self._compiling)
        ceiling = measure_ceiling(bench, job, resident, step_s)
        if watched:
            self._first = job.first_steps(min(watched, job.steps_taken))
        if workload.resident:
            self._sizes.add(resident)
            self._batches = itertools.repeat(resident)
        else:
            loader = build_loader(workload, request.settings, seed=request.seed)
            self._batches = self._sizes.watch(endless(loader))
            del resident
            with self._telling_tail():
                step_s = self._drain(job)
        score = Score(bench, job, self._batches, self._compiling)
        steps_before = job.steps_taken
        with self._telling_tail():
            window = score.window(step_s, ceiling.throughput)
        measured = self._record(job, workload, window, ceiling, steps_before)
        measured = replace(measured, repeated_windows=score.repeated)
        self._scored(measured)
        measured = self._with_trace(measured, job)
        if not workload.resident:
            self._scored(measured)
            measured = self._with_loader_alone(measured)
        self._scored(measured)
        return measured

    def _telling_tail(self) -> AbstractContextManager[None]:
        bench = self._bench
        return blamed_on_the_tail(
            lambda: self._sizes.last_samples, bench.request.settings, bench.device
        )

    def _drain(self, job: TrainingJob) -> float:
        """Start the loader and use up what it prepares ahead; return a typical step's seconds."""
        bench = self._bench
        with bench.part("warmup_s", "warm-up"):
            drained = drain(
                partial(job.step, self._batches),
                timer=make_timer(bench.device),
                settings=bench.request.settings,
                cap_s=min(bench.request.probe.warmup_s, DRAIN_ROOM * bench.left_s),
                synchronize=bench.synchronize,
            )
        if not drained.complete:
            bench.note(
                f"the window began after {drained.batches} batches, with others that the workers "
                "had prepared ahead not used up yet (probe.warmup_s): it may flatter the loader"
            )
        return drained.step_s

    def _record(
        self,
        job: TrainingJob,
        workload: Workload,
        window: Window,
        ceiling: Ceiling,
        steps_before: int,
    ) -> Measurement:
        """Return what is known once the score stands."""
        bench = self._bench
        loss = job.loss_value()
        tail = self._train_tail(job, workload)
        memory = self._memory(tail)
        skipped = job.skipped_steps(steps_before)
        numerics = None
        if self._first is not None:
            numerics = judge_alone(
                self._first,
                parameters_finite=job.parameters_finite(),
                window_steps=window.steps,
                window_skipped=skipped,
            )
        compilation = None if self._compiling is None else self._compiling.report()
        if compilation is not None:
            bench.notes += compile_notes(compilation)
        return Measurement(
            settings=bench.request.settings,
            device=device_info(bench.device),
            window=window,
            device_ceiling=ceiling.throughput,
            launch_s=ceiling.launch_s,
            compilation=compilation,
            numerics=numerics,
            memory=memory,
            costs=bench.costs,
            optimizer_steps=job.steps_taken,
            skipped_steps=skipped,
            last_loss=loss,
            notes=tuple(bench.notes),
        )

    def _train_tail(self, job: TrainingJob, workload: Workload) -> int | None:
        """Train the last, partial batch of a pass, if there is one; return its samples."""
        bench, settings = self._bench, self._bench.request.settings
        samples = tail_samples(workload, settings.batch_size)
        if samples is None:
            return None
        if (note := untried_note(samples, settings)) is not None:
            bench.note(note)
            return None
        with bench.part("warmup_s", "tail batch"):
            batch = itertools.repeat(job.place(resident_batch(workload, samples)))

            def step() -> None:
                bench.one_step(job, batch)
                job.loss_value()

            train_tail(step, samples, settings, bench.device)
        return samples

    def _memory(self, tail: int | None) -> MemoryUse:
        self._bench.note(self._sizes.note())
        return replace(
            memory_use(self._bench.device),
            largest_batch_bytes=self._sizes.largest_bytes,
            tail_batch=tail,
        )

    def _with_trace(self, measured: Measurement, job: TrainingJob) -> Measurement:
        """Add a profiler trace if asked for. A failing profile is a note."""
        bench, window = self._bench, measured.window
        probe, above = bench.request.probe, bench.request.profile_above
        if above is None or window.samples_per_s < above:
            return measured
        # Slow steps need no crowd: what repeats is visible in one.
        steps = max(1, min(probe.profile_steps, int(probe.window_s / 2 / (window.step_ms / 1e3))))
        with bench.part("profile_s", "profile"):
            trace = record_trace(
                partial(job.step, self._batches),
                device=bench.device,
                steps=steps,
                file=Path(bench.request.folder) / TRACE_FILE,
                max_bytes=probe.trace_max_mb * 1e6,
            )
        bench.note(trace.note)
        return replace(
            measured,
            activity=trace.activity,
            trace=None if trace.file is None else trace.file.name,
            optimizer_steps=job.steps_taken,
            costs=bench.costs,
            notes=tuple(bench.notes),
        )

    def _with_loader_alone(self, measured: Measurement) -> Measurement:
        """Add the loader ceiling if asked for: the same loader goes on, its batches are dropped.

        It comes last, since it leaves the queues emptier than training does. The score stands even
        where the loader fails now.
        """
        bench = self._bench
        above, probe = bench.request.loader_above, bench.request.probe
        if above is None or measured.window.samples_per_s < above:
            return measured
        if measured.window.step_ms / 1e3 > probe.loader_ceiling_s:
            return measured  # a few batches, which the loader may need as long for, tell nothing
        ceiling = None
        with bench.part("loader_ceiling_s", "loader ceiling"):
            try:
                window, drained = loader_window(
                    self._batches,
                    settings=bench.request.settings,
                    rel_halfwidth=probe.rel_halfwidth,
                    min_blocks=probe.min_blocks,
                    cap_s=probe.loader_ceiling_s,
                )
            except Exception as error:  # whatever the user's dataset raises
                bench.note(f"no loader ceiling: {type(error).__name__}: {error}")
            else:
                ceiling = window.throughput
                if not drained.complete:
                    bench.note(
                        f"the loader alone was timed after {drained.batches} batches, with others "
                        "that its workers had prepared ahead not used up (probe.loader_ceiling_s): "
                        "its ceiling may be too high"
                    )
        return replace(
            measured, loader_ceiling=ceiling, costs=bench.costs, notes=tuple(bench.notes)
        )

    def _checked(self, workload: Workload, measurement: Measurement) -> Measurement:
        """Return the measurement with the guard's comparison, where it is worth its time."""
        bench, alone = self._bench, measurement.numerics
        above = bench.request.check_above
        if alone is None or self._guard is None or self._first is None:
            return measurement
        if alone.failed is not None or alone.unchecked is not None:
            return measurement
        if above is None or measurement.window.samples_per_s < above:
            why = "not asked for" if above is None else "clearly slower than the best known"
            return replace(measurement, numerics=replace(alone, unchecked=why))
        with bench.part("guard_s", "numerics"):
            report = self._guard.check(
                workload,
                alone,
                self._first,
                step_s=measurement.window.step_ms / 1e3,
                left_s=bench.left_s,
            )
        return replace(measurement, numerics=report, costs=bench.costs)
