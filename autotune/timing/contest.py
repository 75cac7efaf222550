"""The rounds of a comparison: candidates called in turns until enough is known of them."""

from __future__ import annotations

import contextlib
import gc
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from autotune.errors import TimingError
from autotune.measure.device import synchronize
from autotune.measurement import FailureKind
from autotune.statistics import Verdict
from autotune.timing.candidate import (
    Agreement,
    Call,
    Inputs,
    agreement,
)
from autotune.timing.clock import Clock, DeviceClock, HostClock
from autotune.timing.paired import judge, typical
from autotune.timing.verdicts import CandidateTimes, CompareResult
from autotune.timing.work import Work, count_work, memory_of
from autotune.trial.failures import classify, explain

BLOCK_S = 0.01
"""A block lasts this long at least, seconds: 20,000 times the resolution of a device event (0.5 us)
and some hundred times the gap with which it begins, since the device's queue is empty then."""

MOST_CALLS = 10_000
"""Calls in a block at most."""

LOOKS = (16, 32, 64, 128, 256, 512)
"""Rounds after which the intervals are looked at; the last ends the timing. 16 are enough for a
verdict among ten candidates; few looks leave each a large part of the allowed error."""

WARM = 0.95
"""Warm-up is over when a block takes more than this part of the block before."""

FLUSH_BYTES = 256 * 2**20
"""Written between calls to push inputs out of the caches: above the L2 of any GPU (H200: 50 MB,
MI300's last level: 256 MB), as triton.testing.do_bench does."""

_QUEUED = 9


class Contest:
    """Candidates under comparison; one that fails drops out and keeps the reason."""

    def __init__(
        self,
        calls: Mapping[str, Call],
        device: torch.device,
        *,
        flush_cache: bool,
        seed: int,
        now: Callable[[], float],
    ) -> None:
        self._calls = dict(calls)
        self._names = list(calls)
        self._device = device
        self._now = now
        self._clock: Clock[Any] = HostClock(now) if device.type == "cpu" else DeviceClock(device)
        self._flush = (
            torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device) if flush_cache else None
        )
        self._seed = seed
        self._failures: dict[str, str] = {}
        self._agreements: dict[str, Agreement] = {}
        self._first_call_s: dict[str, float] = {}
        self._per_block: dict[str, int] = {}
        self._block_s: dict[str, list[float]] = {name: [] for name in calls}
        self._work: dict[str, Work] = {}
        self._memory: dict[str, int | None] = {}
        self._queue_s: dict[str, float] = {}
        self._elapsed_s = 0.0

    def check_results(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Call each once: does it work, does it leave its inputs alone, do results agree."""
        expected: list[tuple[str, torch.Tensor]] | None = None
        for name in self._names:
            with self._watched(name):
                inputs = Inputs(args, kwargs)
                started = self._now()
                with self._seeded():
                    found = self._calls[name].results()
                self._first_call_s[name] = self._now() - started
                if changed := inputs.restore():
                    self._drop(
                        name,
                        f"changes its input in place ({', '.join(changed)}), so that others would "
                        "be timed on something else. Give it a copy: lambda x: f(x.clone())",
                    )
                elif expected is None:
                    expected = found
                else:
                    self._agreements[name] = agreement(found, expected)

    def warm_up(self, cap_s: float) -> None:
        """Call each until it gets no faster, and find how many calls make a block."""
        for name in self._running():
            with self._watched(name):
                ends = self._now() + cap_s / len(self._calls)
                calls, before = 1, math.inf
                while True:
                    seconds = self._block(name, calls)
                    if seconds * calls < BLOCK_S and calls < MOST_CALLS:
                        wanted = math.ceil(1.2 * BLOCK_S / seconds) if seconds else MOST_CALLS
                        calls = min(MOST_CALLS, max(2 * calls, min(wanted, 100 * calls)))
                        continue
                    if seconds <= 0:
                        raise TimingError("its calls take no time on this clock")
                    if seconds > WARM * before or self._now() >= ends:
                        break
                    before = seconds
                self._per_block[name] = calls

    def run_rounds(self, rel_halfwidth: float, max_seconds: float) -> str | None:
        """Time blocks until ratios are known well enough; return what was left unmet, or None."""
        order = random.Random(self._seed)
        started, rounds, unmet = self._now(), 0, None
        with _no_garbage_collection():
            while running := self._running():
                for name in order.sample(running, len(running)):
                    with self._watched(name):
                        self._block_s[name].append(self._block(name, self._per_block[name]))
                rounds += 1
                late = self._now() - started >= max_seconds
                if not late and rounds not in LOOKS:
                    continue
                width = self._widest()
                if width is not None and width <= rel_halfwidth:
                    break
                if late or rounds == LOOKS[-1]:
                    shown = "unknown" if width is None else f"{width:.1%}"
                    limit = f"max_seconds={max_seconds:g}" if late else f"{rounds} rounds"
                    unmet = (
                        f"stopped by {limit}: half-width of a ratio {shown}, the target is "
                        f"{rel_halfwidth:.1%}"
                    )
                    break
        self._elapsed_s = self._now() - started
        return unmet

    def look_at_work(self) -> None:
        """See what a call of each does besides taking time."""
        for name in self._running():
            call = self._calls[name]
            with self._watched(name):
                self._memory[name] = memory_of(call, self._device)
                if self._device.type != "cpu":
                    self._queue_s[name] = statistics.median(
                        self._queueing(call) for _ in range(_QUEUED)
                    )
                self._work[name] = count_work(call, self._device)
                call.drop_gradients()

    def result(self, *, backward: bool, ended: str | None) -> CompareResult:
        """Return what was found."""
        running = self._running()
        reference = running[0] if running else None
        chances = max(1, len(running) - 1) * (len(LOOKS) + 1)
        return CompareResult(
            device=self._device.type,
            backward=backward,
            rounds=len(self._block_s[running[0]]) if running else 0,
            elapsed_s=self._elapsed_s,
            unmet=ended if len(running) > 1 else None,
            reference=reference,
            candidates=tuple(self._row(name, reference, chances) for name in self._names),
        )

    def _row(self, name: str, reference: str | None, chances: int) -> CandidateTimes:
        if name in self._failures:
            return CandidateTimes(name=name, failure=self._failures[name])
        times_s = self._block_s[name]
        judged = None
        if reference is not None and name != reference:
            judged = judge(times_s, self._block_s[reference], chances)
        work = self._work[name]
        return CandidateTimes(
            name=name,
            time_s=typical(times_s),
            speedup=None if judged is None else judged.ratio,
            verdict=None if judged is None else Verdict(judged.verdict),
            kernels=work.kernels,
            operators=work.operators,
            busy_s=work.busy_s,
            queue_s=self._queue_s.get(name),
            memory_bytes=self._memory[name],
            outputs=self._agreements.get(name),
            first_call_s=self._first_call_s[name],
            calls_per_block=self._per_block[name],
            block_s=tuple(times_s),
        )

    def _running(self) -> list[str]:
        return [name for name in self._names if name not in self._failures]

    def _widest(self) -> float | None:
        """Return the largest relative half-width among the ratios' intervals."""
        first, *others = self._running() or [""]
        widths = []
        for name in others:
            ratio = judge(self._block_s[name], self._block_s[first], 1).ratio
            widths.append(ratio.relative_halfwidth)
        if any(width is None for width in widths):
            return None
        return max((width for width in widths if width is not None), default=0.0)

    def _block(self, name: str, calls: int) -> float:
        """Return the seconds per call of a block, which begins with nothing left to do."""
        call, clock = self._calls[name], self._clock
        synchronize(self._device)
        if self._flush is None:
            points = [clock.mark()]
            for _ in range(calls):
                call()
            points.append(clock.mark())
        else:
            points = []
            for _ in range(calls):
                self._flush.zero_()
                points.append(clock.mark())
                call()
                points.append(clock.mark())
        clock.wait(points[-1])
        pairs = zip(points[::2], points[1::2], strict=True)
        seconds = sum(clock.seconds(before, after) for before, after in pairs)
        for point in points:
            clock.release(point)
        return seconds / calls

    def _queueing(self, call: Call) -> float:
        """Return the host's seconds for one call from an idle device, which it does not wait for.

        One call only: the queue takes about a thousand kernels, then the host waits for a place.
        """
        synchronize(self._device)
        started = self._now()
        call()
        return self._now() - started

    @contextlib.contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        """Let a candidate that runs out of memory drop out; name the one that raises otherwise."""
        try:
            yield
        except Exception as error:
            if classify(error, self._device) is not FailureKind.OUT_OF_MEMORY:
                raise TimingError(f"candidate {name!r} failed: {explain(error)}") from error
            self._drop(name, "out of memory")
            # What the error's frames hold on to is free only when it is gone.
            error.__traceback__ = None
        if self._failures.get(name) == "out of memory" and self._device.type != "cpu":
            self._calls[name].drop_gradients()
            torch.accelerator.empty_cache()

    def _drop(self, name: str, reason: str) -> None:
        self._failures[name] = reason

    @contextlib.contextmanager
    def _seeded(self) -> Iterator[None]:
        """Seed torch's generators, so that all candidates draw the same, and put them back."""
        if self._device.type == "cpu":
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(self._seed)
                yield
            return
        devices = [torch.accelerator.current_device_index()]
        with torch.random.fork_rng(devices=devices, device_type=self._device.type):
            torch.default_generator.manual_seed(self._seed)
            torch.get_device_module(self._device).manual_seed(self._seed)
            yield


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Hold Python's collector back, which would hit one block in many (as timeit does)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
