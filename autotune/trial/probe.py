"""The probe: the short run that measures one setting.

First the same batch over and over, resident on the device: compile and cuDNN's search end here,
and its rate is the device ceiling. Then the loader: the batches that it prepared ahead are drained,
and the timed window gives the score. Then a step on the last, partial batch of a pass, where there
is one. Last, and only if asked, a few steps under the profiler.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autotune.loader import build_loader, endless, resident_batch
from autotune.measure.device import device_info, synchronize
from autotune.measure.memory import memory_use
from autotune.measure.timers import make_timer
from autotune.measure.trace import record_trace
from autotune.measure.warmup import COMPARED, last_change, settled, transient_note
from autotune.measure.window import StopRule, run_window, steps_per_block
from autotune.measurement import Costs, Measurement, MemoryUse, Window
from autotune.request import TrialRequest
from autotune.settings import CompileMode
from autotune.statistics import Estimate
from autotune.trial.batch_sizes import BatchSizes
from autotune.trial.job import TrainingJob
from autotune.trial.tail import tail_samples, train_tail, untried_note
from autotune.workloads.workload import Workload

RESIDENT_WARMUP_STEPS = 3
"""Steps after the first one before anything is timed: CUDA graphs run eagerly once, record once
and replay from the third call on. More follow until the steps have settled."""

HOPELESS = 0.7
"""A device ceiling below this share of the best rate shortens the window to a quarter. Ceilings
are noisy estimates (measured on a ResNet-50 grid: 9 of 86 were passed, by up to 36 %), so such a
trial is still measured, only for less long."""

WAITS_S = 0.005
"""Seconds that `next(loader)` takes at least when it has to wait. A batch that lies ready is handed
over in 0.1 to 1 ms."""

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
        self._batches: Iterator[Any] = iter(())  # kept: letting go of it waits for the workers
        self._sizes = BatchSizes()
        self._tail: int | None = None
        self._sync = partial(synchronize, device)

    @property
    def costs(self) -> Costs:
        """Seconds by part so far."""
        return Costs(**self._seconds)

    def run(self, workload: Workload) -> Measurement:
        """Measure and return the record. Whatever the job raises comes out as it is."""
        request = self._request
        started = time.perf_counter()
        job = TrainingJob(workload, request.settings, self._device, request.seed)
        resident = job.place(resident_batch(workload, request.settings.batch_size))
        self._seconds["setup_s"] = time.perf_counter() - started
        step_s = self._warm_up(job, resident)
        ceiling = self._ceiling(job, resident, step_s)
        if workload.resident:
            self._sizes.add(resident)
            return self._timed(job, workload, itertools.repeat(resident), step_s, ceiling)
        del resident
        loader = build_loader(workload, request.settings, seed=request.seed)
        self._batches = self._sizes.watch(endless(loader))
        step_s = self._drain(job, self._batches)
        return self._timed(job, workload, self._batches, step_s, ceiling)

    def _warm_up(self, job: TrainingJob, resident: Any) -> float:
        """Run the first steps on a resident batch; return what the last ones typically took, s."""
        compiling = self._request.settings.compile is not CompileMode.OFF
        self._stage("compile" if compiling else "warm-up")
        repeated = itertools.repeat(resident)
        started = time.perf_counter()
        step_s = first_s = self._one_step(job, repeated)
        self._seconds["first_step_s"] = first_s
        seen: list[float] = []
        while not settled(seen):
            if not compiling and step_s > self._request.probe.ceiling_s:
                break  # steps this slow are not about launches and caches
            if self._settling_ends(seen):
                break
            step_s = self._one_step(job, repeated)
            seen.append(step_s)
        self._seconds["warmup_s"] = time.perf_counter() - started
        return statistics.median(seen[-COMPARED:]) if seen else step_s

    def _settling_ends(self, step_s: list[float]) -> bool:
        """Return whether resident steps have had their time; note that they had not settled."""
        cap_s = self._request.probe.ceiling_s
        # What the fixed number of steps takes, recording of CUDA graphs included, does not count.
        if sum(step_s[RESIDENT_WARMUP_STEPS:]) < cap_s:
            return False
        # Too few steps to compare are slow ones, which are not about launches and caches either.
        if len(step_s) >= 2 * COMPARED:
            self._notes.append(
                f"the warm-up on one batch ended after {len(step_s) + 1} steps by its time "
                f"(probe.ceiling_s={cap_s:g}), while they still changed by "
                f"{last_change(step_s):+.0%}: the device ceiling is uncertain"
            )
        return True

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
        self._seconds["ceiling_s"] = time.perf_counter() - started
        return window.throughput

    def _drain(self, job: TrainingJob, batches: Iterator[Any]) -> float:
        """Start the loader and use up what it prepares ahead; return a typical step's seconds.

        While the first batch is on its way, the other workers fill their queues; until that is
        gone, a slow loader looks as fast as the device. It is gone once each worker has delivered
        and a step has to wait again. A job that never waits, for twice what the queues hold, is
        not held up by its loader.
        """
        self._stage("warm-up")
        settings = self._request.settings
        turn = max(2, settings.num_workers)
        enough = max(2, 2 * settings.num_workers * (settings.prefetch_factor or 2))
        timer = make_timer(self._device)
        started = time.perf_counter()
        timer.begin()
        done, waited = 0, settings.num_workers == 0
        while done < turn or (not waited and done < enough):
            seen = job.step(batches, timer)
            done += 1
            waited = waited or (done > turn and seen.host_wait_s > WAITS_S)
            if done >= 2 and time.perf_counter() - started > self._request.probe.warmup_s:
                break
        self._sync()
        elapsed_s = time.perf_counter() - started
        self._seconds["warmup_s"] += elapsed_s
        if done < turn or not (waited or done >= enough):
            self._notes.append(
                f"the window began after {done} batches, with others that the workers had "
                "prepared ahead not used up yet (probe.warmup_s): it may flatter the loader"
            )
        # The first step waits for the workers to start; it says nothing of the others.
        later = timer.read().step_s[1:]
        return sum(later) / len(later)

    def _timed(
        self,
        job: TrainingJob,
        workload: Workload,
        batches: Iterator[Any],
        step_s: float,
        ceiling: Estimate | None,
    ) -> Measurement:
        request = self._request
        self._stage("window")
        started = time.perf_counter()
        window = run_window(
            partial(job.step, batches),
            timer=make_timer(self._device),
            rule=self._rule(step_s, ceiling),
            synchronize=self._sync,
        )
        self._seconds["window_s"] = time.perf_counter() - started
        if (note := transient_note(window.step_s, window.steps_per_block)) is not None:
            self._notes.append(note)
        loss = job.loss_value()
        self._train_tail(job, workload)
        memory = self._memory()
        trace = self._profiled(job, batches, window)
        return Measurement(
            settings=request.settings,
            device=device_info(self._device),
            window=window,
            device_ceiling=ceiling,
            memory=memory,
            costs=self.costs,
            optimizer_steps=job.steps_taken,
            skipped_steps=None,
            last_loss=loss,
            trace=trace,
            notes=tuple(self._notes),
        )

    def _train_tail(self, job: TrainingJob, workload: Workload) -> None:
        """Train the last, partial batch of a pass, if there is one: a real run meets it."""
        settings = self._request.settings
        samples = tail_samples(workload, settings.batch_size)
        if samples is None:
            return
        if (note := untried_note(samples, settings)) is not None:
            self._notes.append(note)
            return
        self._stage("tail batch")
        batch = job.place(resident_batch(workload, samples))
        train_tail(
            lambda: self._one_step(job, itertools.repeat(batch)), samples, settings, self._device
        )
        self._tail = samples

    def _memory(self) -> MemoryUse:
        if (note := self._sizes.note()) is not None:
            self._notes.append(note)
        return replace(
            memory_use(self._device),
            largest_batch_bytes=self._sizes.largest_bytes,
            tail_batch=self._tail,
        )

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
        if trace.note is not None:
            self._notes.append(trace.note)
        return None if trace.file is None else trace.file.name
