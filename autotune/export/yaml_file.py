"""`tuned.yaml`: written for people, read strictly."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from autotune.durable import write_whole
from autotune.environment import cpu_model
from autotune.errors import ConfigError, TunedFileError
from autotune.export.tuned import SCHEMA_VERSION, Evidence, HoldsFor, Tuned
from autotune.settings import KNOBS, settings_from_mapping

_HEAD = """\
# Settings that autotune found for {model} on {device}, with the evidence for them.
# Use them in your own training code:
#
#     import autotune
#
#     tuned = autotune.load_tuned("tuned.yaml")
#     loader = DataLoader(dataset, shuffle=True, **tuned.dataloader_kwargs())
#     model = tuned.prepare(model.to(device))
#     optimizer = SGD(model.parameters(), lr=0.1, **tuned.optimizer_kwargs())
#     scaler = tuned.grad_scaler()
#     for batch in loader:
#         images, labels = tuned.to_device(batch, device)
#         with tuned.autocast():
#             loss = loss_fn(model(images), labels)
#         scaler.scale(loss).backward()
#         scaler.step(optimizer)
#         scaler.update()
#         optimizer.zero_grad()
"""

_COMMENTS = {
    "settings": "How to train. null: not applicable.",
    "evidence": (
        "Figures are samples/s, and speedup a ratio, with 95 % intervals; null: not measured."
    ),
    "holds_for": "Where this was measured. On another machine or job, tune again.",
}

_REMEDY = "Correct it, or have the study write it again: its command with study.resume=true."


def write_tuned(tuned: Tuned, path: Path) -> None:
    """Write a `tuned.yaml`, whole or not at all.

    Raises:
        OutputError: The file cannot be written.
    """
    write_whole(
        path,
        _render(tuned),
        todo="study.resume=true goes on with what was measured and writes it again.",
    )


def load_tuned(path: str | Path) -> Tuned:
    """Read a `tuned.yaml`.

    Another torch or device than the file was measured with is a warning, not an error.

    Raises:
        TunedFileError: There is no such file, or it does not say what it must.
    """
    path = Path(path)
    values = _read(path)
    _check_version(path, values.pop("schema_version", None))
    try:
        values["settings"] = _settings(values.get("settings"))
        tuned = TypeAdapter(Tuned).validate_python(values)
    except ConfigError as error:
        raise TunedFileError(f"{path}: {error} {_REMEDY}") from None
    except ValidationError as error:
        raise TunedFileError(f"{path}: {_first_fault(error)} {_REMEDY}") from None
    _warn_if_elsewhere(path, tuned.holds_for)
    return tuned


def _render(tuned: Tuned) -> str:
    parts = [
        _HEAD.format(model=tuned.holds_for.model, device=tuned.holds_for.device_name),
        _dump({"schema_version": tuned.schema_version, "created": tuned.created}),
        _section("settings", tuned.settings.as_dict()),
        _section("evidence", _evidence(tuned.evidence)),
        _section("holds_for", asdict(tuned.holds_for)),
    ]
    return "\n".join(parts)


def _evidence(evidence: Evidence) -> dict[str, Any]:
    values = asdict(evidence) | {"verdict": str(evidence.verdict)}
    for only_where_it_applies in ("compiling", "scores"):
        if values[only_where_it_applies] is None:
            del values[only_where_it_applies]
    return values


def _section(key: str, values: Mapping[str, Any]) -> str:
    # An interval reads best on one line.
    return f"# {_COMMENTS[key]}\n{_dump({key: dict(values)}, inline_leaves=key == 'evidence')}"


def _dump(values: Mapping[str, Any], *, inline_leaves: bool = False) -> str:
    text: str = yaml.safe_dump(
        dict(values),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None if inline_leaves else False,
    )
    return text


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TunedFileError(
            f"{path}: there is no such file. `python -m autotune model=...` writes tuned.yaml "
            "into the folder of its study and prints the path at the end."
        ) from None
    except OSError as error:
        raise TunedFileError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError:
        raise TunedFileError(f"{path}: is not text, so not a tuned.yaml. {_REMEDY}") from None
    except yaml.YAMLError as error:
        place = " ".join(str(error).split())
        raise TunedFileError(f"{path}: is not valid YAML: {place}. {_REMEDY}") from None
    if not isinstance(values, dict):
        found = "nothing" if values is None else type(values).__name__
        raise TunedFileError(f"{path}: found {found}; expected keys and values. {_REMEDY}")
    return values


def _check_version(path: Path, found: object) -> None:
    if type(found) is int and found == SCHEMA_VERSION:
        return
    if type(found) is int and found > SCHEMA_VERSION:
        todo = "It is of a newer autotune: upgrade autotune."
    else:
        todo = _REMEDY
    shown = "nothing" if found is None else repr(found)
    raise TunedFileError(
        f"{path}: schema_version: found {shown}; expected {SCHEMA_VERSION}. {todo}"
    )


def _settings(values: object) -> object:
    if not isinstance(values, dict):
        return values  # missing or of another type: the check of the whole file names it
    settings = settings_from_mapping(
        {str(key): value for key, value in values.items()}, prefix="settings"
    )
    if missing := [knob for knob in KNOBS if knob not in values]:
        raise ConfigError(f"settings.{missing[0]}: is missing; all settings must be there.")
    return settings


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{key}: is missing."
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{key}: is not a key of a tuned.yaml (found {first['input']!r})."
    expected = first["msg"][0].lower() + first["msg"][1:]
    return f"{key}: found {first['input']!r}; {expected}."


def _warn_if_elsewhere(path: Path, measured: HoldsFor) -> None:
    torch_here = _torch_version()
    if measured.torch is not None and torch_here is not None and measured.torch != torch_here:
        _warn(path, f"torch {measured.torch}", f"torch {torch_here}")
    if measured.device_kind not in ("cpu", "cuda"):
        return
    here = [cpu_model()] if measured.device_kind == "cpu" else _cuda_names()
    # A slice of a device (MIG) has the device's name with a suffix.
    if not any(measured.device_name.startswith(name) for name in here):
        _warn(path, measured.device_name, ", ".join(here) or "no CUDA device")


def _warn(path: Path, measured: str, here: str) -> None:
    warnings.warn(
        f"{path}: measured with {measured}; here it is {here}. The settings will work, but "
        "others may be faster: run autotune again.",
        stacklevel=4,
    )


def _torch_version() -> str | None:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def _cuda_names() -> list[str]:
    """Return the names of this machine's CUDA devices, without starting CUDA in this process."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return sorted({str(pynvml.nvmlDeviceGetName(handle)) for handle in handles})
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
