"""From an exception to a failure kind: by type, by where it was raised and by the device's state.

Nothing is judged from what a job prints.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch

from autotune.errors import (
    AutotuneError,
    ConfigError,
    NonFiniteLoss,
    WorkerDied,
    chain,
)
from autotune.measure.deaths import OomKills, ending, exit_code_of_a_child, lacks_memory
from autotune.measure.device import synchronize
from autotune.measurement import FailureKind
from autotune.trial.out_of_memory import (
    fragmentation,
    is_out_of_memory,
    memory_error,
    ran_out_before,
)

_PACKAGE = Path(__file__).parents[1]

_LOADER = str(_PACKAGE / "loader.py")
"""Reads the samples of a resident batch itself, without a DataLoader."""

_SIGCHLD = "torch/utils/data/_utils/signal_handling.py"
"""Tells a worker's death from a signal handler, at whatever line is running."""

_DATA = "torch/utils/data/"
_SENDING = "multiprocessing/reduction.py"
_REBUILDING = "torch/multiprocessing/reductions.py"
_PINNING = "in pin memory thread for device"
"""How torch marks an error of the thread that pins batches, whose traceback is text."""

_SCALER = "torch/amp/grad_scaler.py"
_OPTIMIZERS = "torch/optim/"
_COMPILERS = ("torch/_dynamo/", "torch/_inductor/", "triton/")

_COMPILER_ERRORS = ("torch._dynamo", "torch._inductor", "torch._functorch", "triton")
"""Packages whose own types of error mean that compiling failed."""

_LATE = (
    "The device reports errors late, so the traceback may name a later line than the one at fault; "
    "CUDA_LAUNCH_BLOCKING=1 makes it wait. The process that saw it was ended: its device context "
    "is of no more use."
)


@dataclass(frozen=True)
class Diagnosis:
    """What an exception of a trial comes to.

    Attributes:
        kind: The kind of failure.
        message: What happened, for a person; the user's own words where there are some.
        setting: Name of the setting whose value alone is to blame; None where the error does not
            tell.
    """

    kind: FailureKind
    message: str
    setting: str | None = None


def diagnose(error: BaseException, device: torch.device | None, kills: OomKills) -> Diagnosis:
    """Return what an exception of a trial comes to.

    Args:
        error: What the job raised; its traceback must still hold the failed step's tensors.
        device: The device in use; None before it is known.
        kills: Counts since the trial began.
    """
    if (death := _death(error)) is not None:
        code, killed = death.code, kills.since()
        short = lacks_memory(code, killed)
        text = f"a DataLoader worker {ending(code, killed)}"
        return Diagnosis(FailureKind.OUT_OF_MEMORY if short else FailureKind.WORKER_DIED, text)
    kind, message = classify(error, device), explain(error)
    if kind is FailureKind.CRASH:
        message = f"{message}. {_LATE}"
    if kind is FailureKind.OUT_OF_MEMORY:
        source = memory_error(error, device)
        if source not in (None, error) and not isinstance(error, AutotuneError):
            message = f"{message}, which came from {_said(source)}"
        if (pieces := fragmentation(device)) is not None:
            message = f"{message} ({pieces})"
    return Diagnosis(kind, message, _setting(error))


def classify(error: BaseException, device: torch.device | None) -> FailureKind:
    """Return the kind of failure that an exception stands for.

    Args:
        error: What the job raised.
        device: The device in use; None before it is known.
    """
    kind = _kind_by_type(error, device)
    if kind is FailureKind.USER_ERROR and ran_out_before(device):
        return FailureKind.OUT_OF_MEMORY  # it caught the first error, and raised one of its own
    return kind


def explain(error: BaseException) -> str:
    """Return the exception as one short text for a person."""
    said, frames = _said(error), _frames(error)
    if isinstance(error, AutotuneError):
        return said
    if _cannot_be_sent(frames):
        method = multiprocessing.get_start_method()
        return (
            f"num_workers: what a worker needs cannot be sent to it (start method {method}): "
            f"{said}. Define it at the top of a module; with num_workers=0 nothing is sent"
        )
    if _cannot_be_handed_over(frames):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"num_workers: a worker's batch could not be handed over: {said}. Each of its tensors "
            f"takes an open file meanwhile, and {limit} are allowed (ulimit -n): raise that, or "
            "let data.collate put many small tensors into one"
        )
    innermost = frames[-1].filename if frames else ""
    if innermost.endswith(_SCALER) and isinstance(error, AssertionError):
        return (
            "loss: no parameter of the optimizer got a gradient in this step, and GradScaler "
            f"(precision=fp16) cannot step without one ({said}). Leave such batches out, or "
            "precision=fp16 out of the search"
        )
    if _OPTIMIZERS in innermost:
        return f"optimizer: {said}. Choose another one with optimizer._target_"
    return said


def evidence(error: BaseException) -> str | None:
    """Return the traceback of what the user's code raised, from its first line outside ours.

    None for what only we refused: our messages say what to do; a traceback would bury them.
    """
    raised: BaseException | None = error
    while raised is not None and type(raised).__module__.startswith("autotune."):
        raised = raised.__cause__
    if raised is None:
        return None
    told = traceback.TracebackException.from_exception(raised)
    theirs = list(itertools.dropwhile(_is_ours, told.stack))
    if theirs:  # without any, it is a fault of ours, and our lines are what is wanted
        told.stack = traceback.StackSummary.from_list(theirs)
    return "".join(told.format()).strip()


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(_PACKAGE)


def _said(error: BaseException | None) -> str:
    """Return an exception's own words, in one line, with its type."""
    text = str(error).strip()
    if isinstance(error, AutotuneError):
        return text
    if "Original Traceback (most recent call last)" in text:
        # An error from a loader worker carries its traceback; its last line is the user's own.
        return text.splitlines()[-1].strip() or type(error).__name__
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _frames(error: BaseException) -> traceback.StackSummary:
    """Return where an error came through, the innermost place last."""
    return traceback.extract_tb(error.__traceback__)


def _kind_by_type(error: BaseException, device: torch.device | None) -> FailureKind:
    frames = _frames(error)
    if _death(error) is not None:
        return FailureKind.WORKER_DIED
    if is_out_of_memory(error, device):
        return FailureKind.OUT_OF_MEMORY
    if _is_broken(error, device):  # then whoever raised may have met something else than the fault
        return FailureKind.CRASH
    if isinstance(error, NonFiniteLoss):
        return FailureKind.NON_FINITE
    if isinstance(error, ConfigError):
        return FailureKind.BAD_SETTING
    if _setting(error) is not None:
        return FailureKind.UNSUPPORTED
    if isinstance(error, AutotuneError):
        return FailureKind.USER_ERROR
    if _is_of_compiler(error, frames):
        return FailureKind.COMPILE_FAILED
    if _cannot_be_handed_over(frames):
        return FailureKind.WORKER_DIED
    if any(_DATA in frame.filename or frame.filename == _LOADER for frame in frames):
        return FailureKind.DATASET_ERROR
    return FailureKind.USER_ERROR


def _death(error: BaseException) -> WorkerDied | None:
    """Return the death of a loader worker that an error tells of, or None."""
    found = next((each for each in chain(error) if isinstance(each, WorkerDied)), None)
    if found is None and any(frame.filename.endswith(_SIGCHLD) for frame in _frames(error)):
        # It was told at a line of the job; the worker was not waited for yet.
        found = WorkerDied(str(error), exit_code_of_a_child())
    return found


def _setting(error: BaseException) -> str | None:
    """Return the setting whose value alone an error is about, or None."""
    if isinstance(error, AutotuneError):
        return getattr(error, "setting", None)
    if _cannot_be_sent(_frames(error)):
        return "num_workers"
    return "pin_memory" if _PINNING in str(error) else None


def _cannot_be_sent(frames: traceback.StackSummary) -> bool:
    """Return whether a worker could not be started, since something of the job has no pickle."""
    sending = any(each.filename.endswith(_SENDING) and each.name == "dump" for each in frames)
    return sending and any(_DATA in each.filename for each in frames)


def _cannot_be_handed_over(frames: traceback.StackSummary) -> bool:
    """Return whether a worker's batch was lost on its way, for want of open files as a rule."""
    receiving = any(each.filename.endswith((_SENDING, _REBUILDING)) for each in frames)
    return receiving and any(_DATA in each.filename for each in frames)


def _is_of_compiler(error: BaseException, frames: traceback.StackSummary) -> bool:
    told = (error, error.__cause__)
    typed = any(type(each).__module__.startswith(_COMPILER_ERRORS) for each in told)
    return typed or (bool(frames) and any(part in frames[-1].filename for part in _COMPILERS))


def _is_broken(error: BaseException, device: torch.device | None) -> bool:
    """Return whether the device raised an error, or its context is of no more use.

    A device-side assert comes out of whatever call is next, under the name of a library or of the
    user's own wrapper; every call after it fails as well.
    """
    if any(isinstance(each, torch.AcceleratorError) for each in chain(error)):
        return True
    if device is None or device.type == "cpu":
        return False
    try:
        synchronize(device)
    except RuntimeError:
        return True
    return False
