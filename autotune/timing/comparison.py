"""`compare`: two or more callables on the same inputs, timed in turns."""

from __future__ import annotations

import contextlib
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from autotune.errors import TimingError
from autotune.measure.device import resolve_device, synchronize
from autotune.measurement import FailureKind
from autotune.statistics import Verdict
from autotune.timing.candidate import (
    Agreement,
    Call,
    Gradients,
    Inputs,
    agreement,
    sum_of_outputs,
    tensors,
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
"""Rounds after which the intervals are looked at; the last ends the timing. 16 are the least with
which a verdict can be given; few looks leave each a large part of the allowed error."""

WARM = 0.95
"""Warm-up is over when a block takes more than this part of the block before."""

WARM_UP_SHARE = 0.2
"""Part of `max_seconds` that warm-up may take, for all candidates together."""

FLUSH_BYTES = 256 * 2**20
"""Written between calls to push inputs out of the caches: above the L2 of any GPU (H200: 50 MB,
MI300's last level: 256 MB), as triton.testing.do_bench does."""

_QUEUED = 9


def compare(
    candidates: Mapping[str, Callable[..., Any]],
    args: Sequence[Any] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    device: str | torch.device | None = None,
    rel_halfwidth: float = 0.01,
    max_seconds: float = 10.0,
    flush_cache: bool = False,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> CompareResult:
    """Time functions or modules against the first of them, on the same inputs.

        print(autotune.compare({"five small ops": f, "fused": g}, (x, weight)))

    Rounds of blocks, one block of calls for each candidate in a new random order every round, so
    that drift, clocks and heat hit all alike. A block is timed by device events, or on a CPU by the
    host's clock, with no synchronisation inside it; what a call costs in a busy loop is measured,
    so a device that waits for the host to launch small kernels shows. Calls of a block find
    their inputs in the device's cache, if they fit; `flush_cache` times each call with cold ones.

    Gradient mode, autocast and the like are as the caller has them. Outputs, and with `backward`
    the inputs' gradients, are compared with those of the first candidate, with equal random seeds.

    Args:
        candidates: At least two callables by name; the first is what others are compared with.
        args: Positional arguments of all of them, or a single tensor.
        kwargs: Keyword arguments of all of them.
        backward: Time forward and backward: gradients for all floating inputs and for all
            parameters, cleared before each call.
        loss: Makes a scalar of what a candidate returns, with `backward`; by default the sum of all
            floating outputs.
        device: Where the work runs; by default where the first tensor in `args`, `kwargs` or the
            candidates' parameters is, else the accelerator.
        rel_halfwidth: Stop when the 95 % interval of each ratio is within this share of it.
        max_seconds: Stop then at the latest (a round is finished); compiling in a candidate's first
            call and the looks at kernels and memory after the timing come on top.
        flush_cache: Overwrite the caches before each call, outside its time.
        seed: Of the order of the blocks, and of torch's generator where outputs are compared.
        clock: The host's clock in seconds.

    Returns:
        A row for each candidate. One that runs out of memory, or changes its inputs in place, has
        only the reason; the others are compared.

    Raises:
        TimingError: Fewer than two candidates, or an argument that cannot be used; a candidate
            raised an error, which is the cause of this one.
        ConfigError: The device is not there.
    """
    positional: Sequence[Any] = (args,) if isinstance(args, torch.Tensor) else args
    named = dict(kwargs or {})
    _check(candidates, positional, rel_halfwidth, max_seconds, loss if not backward else None)
    where = _device(device, candidates, positional, named)
    differentiated = (loss or sum_of_outputs) if backward else None
    gradients = Gradients()
    calls = {
        name: Call(function, positional, named, differentiated, gradients)
        for name, function in candidates.items()
    }
    with contextlib.ExitStack() as stack:
        if where.index is not None:
            stack.enter_context(torch.accelerator.device_index(where.index))
        if backward:
            stack.enter_context(torch.enable_grad())
        stack.callback(gradients.give_back)
        contest = _Contest(calls, where, flush_cache=flush_cache, seed=seed, now=clock)
        contest.check_results(positional, named)
        contest.warm_up(WARM_UP_SHARE * max_seconds)
        ended = contest.run_rounds(rel_halfwidth, max_seconds)
        contest.look_at_work()
        return contest.result(backward=backward, ended=ended)


class _Contest:
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


def _check(
    candidates: Mapping[str, Callable[..., Any]],
    args: object,
    rel_halfwidth: float,
    max_seconds: float,
    useless_loss: object,
) -> None:
    if not isinstance(candidates, Mapping) or len(candidates) < 2:
        raise TimingError(
            "candidates: two or more callables by name are needed, such as "
            '{"five small ops": f, "fused": g}'
        )
    for name, function in candidates.items():
        if not callable(function):
            raise TimingError(f"candidate {name!r}: got {function!r}; allowed: a callable")
    if not isinstance(args, (tuple, list)):
        raise TimingError(
            f"args: got {type(args).__name__}; allowed: a tuple of the arguments, or one tensor"
        )
    for key, value in (("rel_halfwidth", rel_halfwidth), ("max_seconds", max_seconds)):
        if not value > 0:
            raise TimingError(f"{key}: got {value!r}; allowed: a number above 0")
    if useless_loss is not None:
        raise TimingError("loss is used for backward=True only: set that, or leave out loss")


def _device(
    given: str | torch.device | None,
    candidates: Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> torch.device:
    if given is not None:
        return resolve_device(str(given))
    for _, tensor in tensors((args, kwargs)):
        return tensor.device
    for function in candidates.values():
        if isinstance(function, torch.nn.Module):
            for parameter in function.parameters():
                return parameter.device
    return resolve_device("auto")


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
