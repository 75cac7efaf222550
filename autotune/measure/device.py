"""The device of a trial: which one, what it can do, waiting for it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import torch

from autotune.environment import DeviceInfo, cpu_model
from autotune.errors import ConfigError

_CPU_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def resolve_device(wanted: str) -> torch.device:
    """Return the device to use.

    Args:
        wanted: auto, cpu, cuda, xpu, or one such as cuda:1.

    Raises:
        ConfigError: The device is not there.
    """
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if wanted == "auto":
        return found if found is not None and found.type in ("cuda", "xpu") else torch.device("cpu")
    device = torch.device(wanted)
    if device.type == "cpu":
        return device
    count = torch.accelerator.device_count() if found is not None else 0
    if found is None or found.type != device.type or (device.index or 0) >= count:
        have = (
            f"{count} {found.type} device(s)" if found is not None and count else "no accelerator"
        )
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hidden = f" (CUDA_VISIBLE_DEVICES={visible!r})" if visible is not None else ""
        raise ConfigError(
            f"device: got {wanted!r}, but torch {torch.__version__} sees {have}{hidden}. "
            "Use device=auto or device=cpu, or install a torch build for the device."
        )
    return device


def device_info(device: torch.device) -> DeviceInfo:
    """Return what the device is and can do."""
    compiler = any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++"))
    if device.type == "cpu":
        return DeviceInfo("cpu", cpu_model(), None, None, _cpu_has_bf16(), compiler)
    module = torch.get_device_module(device)
    properties = module.get_device_properties(device)
    capability, bf16 = None, True
    if device.type == "cuda":
        capability = ".".join(str(part) for part in torch.cuda.get_device_capability(device))
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return DeviceInfo(
        kind=device.type,
        name=properties.name,
        memory_bytes=properties.total_memory,
        capability=capability,
        native_bf16=bf16,
        compiler=compiler and importlib.util.find_spec("triton") is not None,
    )


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all its work; on a CPU there is nothing to wait for."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _cpu_has_bf16() -> bool | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return bool(_CPU_BF16_FLAGS & set(line.split()))
    return None
