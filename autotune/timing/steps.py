"""`StepTimer`: where the time goes in a training loop that the user wrote."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from autotune.errors import TimingError
from autotune.measure.device import resolve_device
from autotune.timing.boundaries import StepBoundaries
from autotune.timing.clock import Clock, DeviceClock
from autotune.timing.derive import DATA, step_report
from autotune.timing.history import StepHistory
from autotune.timing.report import OTHER, StepReport

KEEP_STEPS = 20_000
"""Steps that a report is about, at least: some MB for tens of phases, and room for the period of
something that happens every few thousand steps."""

MOST_PHASES = 256
"""Different phases a timer takes: more of them are names with a number in them."""

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")
Batch = TypeVar("Batch")


class StepTimer:
    """Times the phases of a training loop, without synchronising inside it.

    On a device, an event is recorded in the current stream where a phase begins and ends, and read
    once the device has passed it; on a CPU the host's clock does the same. The first step begins
    with the first phase or batch, each further one where `step` ended the one before it.

        timer = autotune.StepTimer()
        for images, labels in timer.iterate(loader):
            with timer.phase("forward"):
                loss = model(images, labels)
            ...
            timer.step()
        print(timer.report())

    A timer belongs to one thread. Phases go around compiled functions and replays of CUDA graphs,
    not into them: in a compiled function a phase breaks the graph (an error with fullgraph=True).

    Args:
        device: Where the work runs: "auto" takes the accelerator that torch sees, else the CPU; or
            cpu, cuda, cuda:1, xpu, or a `torch.device`.
        enabled: False makes every call do nothing.
        keep_steps: The report is about this many latest steps at least, and twice as many at most;
            older ones are forgotten, so that a run of any length takes the same memory.
        clock: The host's clock in seconds.

    Raises:
        ConfigError: The device is not there.
        TimingError: `keep_steps` is below 100.
    """

    def __init__(
        self,
        device: str | torch.device = "auto",
        *,
        enabled: bool = True,
        keep_steps: int = KEEP_STEPS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if keep_steps < 100:
            raise TimingError(f"keep_steps: got {keep_steps}; allowed: 100 or more")
        self._device = resolve_device(str(device)) if enabled else torch.device("cpu")
        self._enabled = enabled
        self._now = clock
        self._clock: Clock[Any] | None = None
        if self._device.type != "cpu":
            self._clock = DeviceClock(self._device)
        self._history = StepHistory(keep_steps)
        self._handles: dict[str, PhaseHandle] = {}
        self._paths: list[str] = []
        self._children: list[dict[str, int]] = [{}]
        self._open: list[int] = []
        self._current: StepBoundaries | None = None
        self._pending: deque[StepBoundaries] = deque()
        self._spare: list[StepBoundaries] = []
        self._thread: int | None = None
        self._workers = 0

    def phase(self, name: str) -> PhaseHandle:
        """Return a context manager, and decorator, that times a phase of the current step.

        Phases nest: "attention" inside "forward" is reported as "forward/attention", and is part
        of "forward". One that runs several times in a step counts with their sum.

        Args:
            name: Any name without "/"; "other" is taken by the time outside of all phases.

        Raises:
            TimingError: The name cannot be used. On entering: in another thread than the timer's
                first phase; 256 different phases are there already; a CUDA graph is being captured.
        """
        handle = self._handles.get(name)
        if handle is None:
            if not isinstance(name, str) or not name.strip() or "/" in name or name == OTHER:
                raise TimingError(
                    f"phase: got {name!r}; allowed: any name but {OTHER!r}, without '/'. Nest "
                    "phases to get a path such as forward/attention."
                )
            handle = PhaseHandle(self if self._enabled else None, name)
            if len(self._handles) < MOST_PHASES:
                self._handles[name] = handle
        return handle

    def iterate(self, batches: Iterable[Batch]) -> TimedBatches[Batch]:
        """Return the same batches, with the time that each takes to arrive as the phase "data".

        The number of samples in a batch is the leading dimension of its first tensor, unless `step`
        is told another.

        Args:
            batches: A DataLoader or any other iterable. Its length is kept, if it has one.
        """
        return TimedBatches(self if self._enabled else None, batches)

    def step(self, samples: int | None = None) -> None:
        """End the current step and begin the next.

        Args:
            samples: Samples that the step trained on; by default those that `iterate` saw in it.

        Raises:
            TimingError: A phase is open.
        """
        if not self._enabled:
            return
        self._check_thread("step()")
        if self._open:
            raise TimingError(
                f"step() was called inside the phase {self._paths[self._open[-1]]!r}. End the "
                "phase first: step() belongs after the `with` block, at the end of the loop's body."
            )
        ended = self._step()
        next_step = self._spare.pop() if self._spare else StepBoundaries()
        next_step.start(self._mark(), self._now())
        ended.end = next_step.marks[0]
        ended.host.append(next_step.host[0])
        if samples is not None:
            ended.samples = samples
        self._current = next_step
        if len(ended.codes) or ended.measured:
            self._pending.append(ended)
        self._fold_passed()

    def report(self) -> StepReport:
        """Return what was seen of the complete steps so far.

        Waits for the device to pass the end of the last complete step, as nothing else here does.

        Raises:
            TimingError: No step is complete.
        """
        if not self._enabled:
            return step_report(None, (), device=self._device, workers=0, on_device=False)
        if self._clock is not None and self._pending:
            self._clock.wait(self._pending[-1].end)
        self._fold_passed()
        if not len(self._history):
            seen = f" Phases seen: {', '.join(self._paths)}." if self._paths else ""
            raise TimingError(
                "no step is complete: call timer.step() once at the end of each training step, "
                f"then timer.report().{seen}"
            )
        return step_report(
            self._history,
            tuple(self._paths),
            device=self._device,
            workers=self._workers,
            on_device=self._clock is not None,
        )

    def _enter(self, name: str) -> None:
        self._check_thread(f"phase {name!r}")
        children = self._children[self._open[-1] + 1 if self._open else 0]
        path = children.get(name)
        if path is None:
            path = self._add_path(name, children)
        self._boundary(path)
        self._open.append(path)

    def _leave(self, name: str) -> None:
        self._check_thread(f"phase {name!r}")
        if not self._open or self._paths[self._open[-1]].rpartition("/")[2] != name:
            inside = self._paths[self._open[-1]] if self._open else "no phase"
            raise TimingError(
                f"phase {name!r} ends while {inside!r} is the one that is open. Phases nest: the "
                "one that began last ends first."
            )
        self._boundary(~self._open.pop())

    def _boundary(self, code: int) -> None:
        step = self._step()
        step.marks.append(self._mark())
        step.host.append(self._now())
        step.codes.append(code)

    def _step(self) -> StepBoundaries:
        """Return the current step; the first begins now."""
        if self._current is None:
            first = StepBoundaries()
            first.start(self._mark(), self._now())
            first.measured = False
            self._current = first
        return self._current

    def _mark(self) -> Any:
        return None if self._clock is None else self._clock.mark()

    def _add_path(self, name: str, children: dict[str, int]) -> int:
        if len(self._paths) >= MOST_PHASES:
            raise TimingError(
                f"phase {name!r} is one too many: {MOST_PHASES} different phases are timed. Name "
                "a phase after what is done, without the number of the step or batch."
            )
        parent = f"{self._paths[self._open[-1]]}/" if self._open else ""
        children[name] = len(self._paths)
        self._paths.append(parent + name)
        self._children.append({})
        return children[name]

    def _check_thread(self, what: str) -> None:
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        elif thread != self._thread:
            raise TimingError(
                f"{what} in the thread {threading.current_thread().name!r}, but this timer's steps "
                "run in another. Give each thread its own StepTimer."
            )

    def _fold_passed(self) -> None:
        """Turn the steps that the device has finished into numbers, and reuse what they held."""
        while self._pending:
            step = self._pending[0]
            if self._clock is not None and not self._clock.passed(step.end):
                return
            self._pending.popleft()
            self._fold(step)
            step.codes.clear()
            step.marks.clear()
            step.host.clear()
            self._spare.append(step)

    def _fold(self, step: StepBoundaries) -> None:
        while self._history.phases < len(self._paths):
            self._history.add_phase()
        host_s = step.totals(len(self._paths), lambda a, b: step.host[b] - step.host[a])
        clock = self._clock
        if clock is None:
            step_s, phases_s = step.host[-1] - step.host[0], host_s
        else:
            marks = step.marks
            phases_s = step.totals(len(self._paths), lambda a, b: clock.seconds(marks[a], marks[b]))
            step_s = clock.seconds(marks[0], step.end)
            for mark in marks:  # its end is the beginning of the next step
                clock.release(mark)
        self._history.add(step_s, phases_s, host_s, samples=step.samples, restarted=step.restarted)


class PhaseHandle:
    """A named phase: use it in a `with` statement or as a decorator, any number of times."""

    def __init__(self, timer: StepTimer | None, name: str) -> None:
        self._timer = timer
        self._name = name

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer._enter(self._name)

    def __exit__(self, *raised: object) -> None:
        if self._timer is not None:
            self._timer._leave(self._name)

    def __call__(self, function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
        """Return the function with each call timed as this phase.

        Raises:
            TimingError: It is a generator or coroutine function, whose call does not do its work.
        """
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TimingError(
                f"phase {self._name!r} decorates {function.__name__}, a generator or coroutine "
                "function: its call returns before its work is done. Use `with` inside it."
            )
        if self._timer is None:
            return function

        @functools.wraps(function)
        def timed(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
            with self:
                return function(*args, **kwargs)

        return timed


class TimedBatches(Generic[Batch]):
    """Batches whose arrival is timed; as long as what they come from."""

    def __init__(self, timer: StepTimer | None, batches: Iterable[Batch]) -> None:
        self._timer = timer
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # its own error says it has none

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches) if self._timer is None else self._timed(self._timer)

    def _timed(self, timer: StepTimer) -> Iterator[Batch]:
        timer._workers = max(timer._workers, getattr(self._batches, "num_workers", 0))
        data = timer.phase(DATA)
        with data:  # a DataLoader starts its workers here
            batches = iter(self._batches)
        timer._step().restarted = True
        while True:
            with data:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            timer._step().add_samples(batch)
            yield batch
