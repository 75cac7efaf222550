"""Lack of memory, under whatever name it comes.

What decides, in this order: the type of an error, its own or that of one it came from; the error
code of the device's runtime; a short list of texts, for the libraries that have neither; and for
what may mean anything, the device's state: the allocator's counters and the free memory.
"""

from __future__ import annotations

import errno

import torch

from autotune.errors import chain

_NEAR_FULL = 0.05
"""Below this share of free device memory, an error of a CUDA library counts as lack of memory."""

_FRAGMENTED = 0.25
"""From this share of the reserved memory on that lies free and yet served nobody, fragmentation is
named. Before it gives up, torch's allocator returns every block that is wholly free, so what is
left is in pieces. In pytorch issue 35901 it was half of the memory."""

_CUDA_OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation (CUDA Runtime API, cudaError), hipErrorOutOfMemory likewise."""

_TEXTS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "HIP out of memory",
    "MPS backend out of memory",
    "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    "UR_RESULT_ERROR_OUT_OF_HOST_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUFFT_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Cannot allocate memory (12)",
    "unable to write to file </torch_",
    "unable to allocate shared memory(shm) for file </torch_",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
)
"""Ways in which torch and the libraries under it say that memory ran out with a plain RuntimeError
(accelerate issue 3803 and pull request 4227). They are texts of an exception in our own process,
never of a log. Segments named `torch_` are batches in /dev/shm."""

_AMBIGUOUS = ("CUDNN_STATUS", "CUBLAS_STATUS", "CUSOLVER_STATUS", "CUFFT_", "UR_RESULT_ERROR_OUT")
"""Statuses of libraries that may mean lack of memory for a workspace, or something else."""


def is_out_of_memory(error: BaseException, device: torch.device | None) -> bool:
    """Return whether an exception stands for lack of memory, on the device or the host.

    An error that was raised while lack of memory was being handled stands for it too.

    Args:
        error: What was raised.
        device: The device in use; None before it is known.
    """
    return memory_error(error, device) is not None


def memory_error(error: BaseException, device: torch.device | None) -> BaseException | None:
    """Return the first error that says that memory ran out: this one, or one it came from."""
    return next((each for each in chain(error) if _lacks_memory(each, device)), None)


def ran_out_before(device: torch.device | None) -> bool:
    """Return whether the device's allocator has failed somebody since the process began.

    A job may catch the error and raise its own later, with nothing in it of the first one.
    """
    return bool(_counters(device).get("num_ooms"))


def fragmentation(device: torch.device | None) -> str | None:
    """Return advice where much of the reserved memory is free, but in pieces; None elsewhere.

    To be asked while the failed step's tensors are still alive.
    """
    stats = _counters(device)
    reserved = stats.get("reserved_bytes.all.current", 0)
    free = reserved - stats.get("allocated_bytes.all.current", 0)
    if not reserved or free < _FRAGMENTED * reserved:
        return None
    return (
        f"fragmentation: {free / 2**30:.1f} of the {reserved / 2**30:.1f} GiB that torch holds are "
        "free, but in pieces. PYTORCH_ALLOC_CONF=expandable_segments:True may make it fit; it is "
        "not set here, since your own runs would need it as well"
    )


def _lacks_memory(error: BaseException, device: torch.device | None) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if not isinstance(error, RuntimeError):
        return False
    if getattr(error, "error_code", None) == _CUDA_OUT_OF_MEMORY:
        return True
    text = str(error)
    if any(words in text for words in _TEXTS):
        return True
    return any(words in text for words in _AMBIGUOUS) and _memory_is_short(device)


def _memory_is_short(device: torch.device | None) -> bool:
    if device is None or device.type != "cuda":
        return False
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return False  # the context is gone; whatever it was, memory cannot be asked any more
    return free / total < _NEAR_FULL or ran_out_before(device)


def _counters(device: torch.device | None) -> dict[str, int]:
    """Return the counters of the device's caching allocator, empty where it has none."""
    if device is None or device.type == "cpu":
        return {}
    try:
        found: dict[str, int] = torch.get_device_module(device).memory_stats(device)
    except (AttributeError, RuntimeError):
        return {}  # another kind of device, or one whose context is gone
    return found
