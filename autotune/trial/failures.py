"""From an exception to a failure kind: by type and by where it was raised, not by log text."""

from __future__ import annotations

import itertools
import traceback
from pathlib import Path

import torch

from autotune.errors import AutotuneError, ConfigError, NonFiniteLoss, UnsupportedSetting
from autotune.measurement import FailureKind

_NEAR_FULL = 0.05
"""Below this share of free device memory, an error of a CUDA library counts as lack of memory."""

_OUT_OF_MEMORY_WORDS = (
    "CUDA out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
)
"""Ways in which torch and the CUDA libraries say that memory ran out without the type for it
(accelerate issue 3803). The texts come from our own process's exception, never from a log."""

_LIBRARY_WORDS = ("CUDNN_STATUS_NOT_SUPPORTED", "CUBLAS_STATUS", "CUDNN_STATUS")

_PACKAGE = Path(__file__).parents[1]

_LOADER = str(_PACKAGE / "loader.py")
"""Reads the samples of a resident batch itself, without a DataLoader."""


def classify(error: BaseException, device: torch.device | None) -> FailureKind:
    """Return the kind of failure that an exception stands for.

    Args:
        error: What the job raised.
        device: The device in use; None before it is known.
    """
    if isinstance(error, UnsupportedSetting):
        return FailureKind.UNSUPPORTED
    if isinstance(error, NonFiniteLoss):
        return FailureKind.NON_FINITE
    if isinstance(error, ConfigError):
        return FailureKind.BAD_SETTING
    if isinstance(error, AutotuneError):
        # What the user's factory raised travels as the cause.
        lacks_memory = is_out_of_memory(error.__cause__, device)
        return FailureKind.OUT_OF_MEMORY if lacks_memory else FailureKind.USER_ERROR
    if is_out_of_memory(error, device):
        return FailureKind.OUT_OF_MEMORY
    module = type(error).__module__
    if module.startswith(("torch._dynamo", "torch._inductor", "triton")):
        return FailureKind.COMPILE_FAILED
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if _worker_died(error, files):
        return FailureKind.WORKER_DIED
    if any("torch/utils/data/" in file or file == _LOADER for file in files):
        return FailureKind.DATASET_ERROR
    if isinstance(error, torch.AcceleratorError):
        return FailureKind.CRASH
    return FailureKind.USER_ERROR


def explain(error: BaseException) -> str:
    """Return the exception as one short text for a person."""
    text = str(error).strip()
    if isinstance(error, (EOFError, ConnectionError)):
        return f"lost the connection to a DataLoader worker or another process ({error!r})"
    if "Original Traceback (most recent call last)" in text:
        # An error from a loader worker carries its traceback; its last line is the user's own.
        text = text.splitlines()[-1].strip()
        return text or type(error).__name__
    if isinstance(error, AutotuneError):
        return text
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


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


def _worker_died(error: BaseException, files: list[str]) -> bool:
    """Tell the death of a loader worker, which reaches the training process in several ways.

    DataLoader raises RuntimeError from a SIGCHLD handler, at whatever line is running; or the read
    of a batch breaks off first (seen: ConnectionResetError, EOFError).
    """
    if any(file.endswith("torch/utils/data/_utils/signal_handling.py") for file in files):
        return True
    in_loader = any(file.endswith("torch/utils/data/dataloader.py") for file in files)
    broken = isinstance(error, (EOFError, ConnectionError))
    return in_loader and (broken or "DataLoader worker (pid" in str(error))


def is_out_of_memory(error: BaseException | None, device: torch.device | None) -> bool:
    """Return whether an exception stands for lack of memory, on the device or the host.

    Args:
        error: What was raised, if anything.
        device: The device in use; None before it is known.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    if any(words in text for words in _OUT_OF_MEMORY_WORDS):
        return True
    return any(words in text for words in _LIBRARY_WORDS) and _memory_is_full(device)


def _memory_is_full(device: torch.device | None) -> bool:
    if device is None or device.type != "cuda":
        return False
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return False  # the context is gone; whatever it was, memory cannot be asked any more
    return free / total < _NEAR_FULL
