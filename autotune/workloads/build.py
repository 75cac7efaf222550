"""Builds the workload from plain values: the only place where the user's callables are found."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch.utils.data import DataLoader, IterableDataset

from autotune.config import WorkloadSpec
from autotune.errors import (
    AutotuneError,
    UnsupportedSetting,
    WorkloadError,
    config_error,
    nearest,
)
from autotune.workloads.resident import ResidentImages
from autotune.workloads.workload import Parameters, Workload

_TORCHVISION_MODEL = "torchvision.models.get_model"


def build_workload(spec: WorkloadSpec) -> Workload:
    """Build a workload; the model and the optimizer are built later, through its callables.

    All callables are found before the first of them is called, so that a mistyped name is told at
    once and not after a dataset has been read. The current folder is put on `sys.path`.

    Args:
        spec: `_target_` and keyword arguments of each part.

    Raises:
        WorkloadError: A callable cannot be found, raises, or returns something else than it must.
        ConfigError: A value that autotune itself can refuse, such as an unknown torchvision model.
    """
    _make_current_folder_importable()
    if "fused" in spec.optimizer:
        raise config_error(
            "optimizer.fused",
            spec.optimizer["fused"],
            "not to be given here, since it is a setting that is tuned",
            todo="Use baseline.fused_optimizer and search_space.fused_optimizer.",
        )
    _check_torchvision_name(spec.model)
    model = _locate("model", spec.model)
    data = _locate("data", spec.data)
    optimizer = _locate("optimizer", spec.optimizer)
    collate = _function_or_instance("data.collate", spec.collate)
    loss = _function_or_instance("loss", spec.loss)
    dataset = _checked_dataset(_call("data", data))
    return Workload(
        dataset=dataset,
        collate=collate,
        build_model=functools.partial(_build_model, model),
        loss=loss,
        build_optimizer=functools.partial(_build_optimizer, optimizer),
        shuffle=spec.loader.shuffle,
        drop_last=spec.loader.drop_last,
        resident=isinstance(dataset, ResidentImages),
    )


def _build_model(target: functools.partial[Any]) -> torch.nn.Module:
    model = _call("model", target)
    if not isinstance(model, torch.nn.Module):
        _refuse("model", target, model, "a torch.nn.Module")
    return model


def _build_optimizer(
    target: functools.partial[Any], parameters: Parameters, *, fused: bool = False
) -> torch.optim.Optimizer:
    if not fused:
        optimizer = _call("optimizer", target, parameters)
    else:
        _require_fused(target)
        try:
            optimizer = _call("optimizer", target, parameters, fused=True)
        except WorkloadError as error:
            # Torch refuses some devices and dtypes with a RuntimeError when it is constructed.
            if isinstance(error.__cause__, RuntimeError):
                raise UnsupportedSetting(
                    "fused_optimizer", f"fused_optimizer: {error}"
                ) from error.__cause__
            raise
    if not isinstance(optimizer, torch.optim.Optimizer):
        _refuse("optimizer", target, optimizer, "a torch.optim.Optimizer")
    return optimizer


def _require_fused(target: functools.partial[Any]) -> None:
    parameters = inspect.signature(target.func).parameters.values()
    if not any(p.name == "fused" or p.kind is p.VAR_KEYWORD for p in parameters):
        raise UnsupportedSetting(
            "fused_optimizer",
            f"fused_optimizer: {_name(target)} has no argument 'fused'. "
            "Leave it out of the search with search_space.fused_optimizer=null.",
        )


def _checked_dataset(dataset: Any) -> Any:
    """Return what the data callable gave, if a DataLoader can read it.

    A class need not derive from torch's Dataset: `__getitem__` and `__len__` are all that counts.
    """
    if isinstance(dataset, DataLoader):
        raise WorkloadError(
            "data: got a DataLoader; expected its dataset. Return the dataset itself (and give "
            "its collate_fn as data.collate._target_): autotune builds the DataLoader."
        )
    if isinstance(dataset, IterableDataset):
        return dataset
    # Pairs of splits and dictionaries of splits have a length as well, but are no dataset.
    several = isinstance(dataset, (tuple, Mapping, str, bytes, type))
    if several or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise WorkloadError(
            f"data: got {_kind(dataset)}; expected one dataset: an object with __getitem__ and "
            "__len__, or a torch.utils.data.IterableDataset."
        )
    if len(dataset) == 0:
        raise WorkloadError("data: the dataset is empty; expected at least one sample.")
    return dataset


def _function_or_instance(key: str, spec: Mapping[str, Any] | None) -> Callable[..., Any] | None:
    """Return a function with its arguments bound, or an instance of a class; None for none."""
    if spec is None or spec.get("_target_") is None:
        return None
    target = _locate(key, spec)
    if not isinstance(target.func, type):
        # Called in every step: without arguments to bind, spare the partial.
        return target if target.args or target.keywords else target.func
    instance = _call(key, target)
    if not callable(instance):
        _refuse(key, target, instance, "something that can be called")
    return instance  # type: ignore[no-any-return]


def _locate(key: str, spec: Mapping[str, Any]) -> functools.partial[Any]:
    """Find the `_target_` and build its arguments, but do not call it."""
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    try:
        with _exits_as_errors():
            deferred = instantiate({**spec, "_partial_": True, "_convert_": "all"})
    except AutotuneError:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, InstantiationException) else None
        if isinstance(cause, ImportError) and cause.__cause__ is not None:
            cause = cause.__cause__  # Hydra wraps what happened while it looked for a name twice
        if isinstance(cause, AutotuneError):
            raise cause from None
        raise _not_located(key, str(spec["_target_"]), cause or error) from (cause or error)
    # Hydra's own partial checks each call anew; some of these are called in every step.
    return functools.partial(deferred.func, *deferred.args, **deferred.keywords)


def _not_located(key: str, target: str, cause: BaseException) -> WorkloadError:
    module, _, name = target.rpartition(".")
    loaded = sys.modules.get(module)
    if isinstance(cause, ImportError) and loaded is not None and not hasattr(loaded, name):
        close = nearest(name, vars(loaded))
        hint = f" Did you mean {f'{module}.{close}'!r}?" if close else ""
        return WorkloadError(f"{key}: cannot use {target!r}: {module} has no {name!r}.{hint}")
    where = (
        f" Modules are looked for in the current folder, {os.getcwd()}, then among the installed "
        "packages."
        if isinstance(cause, ModuleNotFoundError)
        else ""
    )
    return WorkloadError(f"{key}: cannot use {target!r}: {_text(cause)}{where}")


def _call(key: str, target: functools.partial[Any], *args: Any, **kwargs: Any) -> Any:
    try:
        with _exits_as_errors():
            return target(*args, **kwargs)
    except AutotuneError:
        raise
    except Exception as error:
        raise WorkloadError(f"{key}: {_name(target)} failed: {_text(error)}") from error


class _ExitError(Exception):
    """The user's code tried to end the process."""


@contextmanager
def _exits_as_errors() -> Iterator[None]:
    try:
        yield
    except SystemExit as error:
        raise _ExitError(
            f"it called sys.exit({'' if error.code is None else repr(error.code)})"
        ) from (error)


def _make_current_folder_importable() -> None:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _check_torchvision_name(spec: Mapping[str, Any]) -> None:
    """Refuse an unknown torchvision model with the nearest name, which torchvision does not tell.

    Raises:
        ConfigError: torchvision has no such model.
    """
    if spec["_target_"] != _TORCHVISION_MODEL:
        return
    from torchvision.models import list_models

    name, known = str(spec.get("name")), list_models()
    if name.lower() not in known:
        raise config_error(
            "model.name",
            spec.get("name"),
            "a name from torchvision.models.list_models()",
            suggestion=nearest(name, known),
        )


def _refuse(key: str, target: functools.partial[Any], value: Any, expected: str) -> NoReturn:
    raise WorkloadError(f"{key}: {_name(target)} returned {_kind(value)}; expected {expected}.")


def _name(target: functools.partial[Any]) -> str:
    function = target.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}.{name}"


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__qualname__} itself"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")


def _text(error: BaseException) -> str:
    if isinstance(error, _ExitError):
        return f"{error}."
    said = " ".join(str(error).split()) or "(no message)"
    return f"{type(error).__name__}: {said}" + ("" if said[-1] in ".!?" else ".")
