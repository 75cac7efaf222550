"""`compare`: two or more callables on the same inputs, timed in turns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from autotune.errors import TimingError
from autotune.measure.device import resolve_device
from autotune.timing.candidate import Call, Gradients, sum_of_outputs, tensors
from autotune.timing.contest import Contest
from autotune.timing.verdicts import CompareResult

WARM_UP_SHARE = 0.2
"""Part of `max_seconds` that warm-up may take, for all candidates together."""


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
        contest = Contest(calls, where, flush_cache=flush_cache, seed=seed, now=clock)
        contest.check_results(positional, named)
        contest.warm_up(WARM_UP_SHARE * max_seconds)
        ended = contest.run_rounds(rel_halfwidth, max_seconds)
        contest.look_at_work()
        return contest.result(backward=backward, ended=ended)


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
