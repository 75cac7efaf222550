"""Can what a worker needs be sent to it?

Workers that start by fork inherit the dataset and the collate function. Those that start by spawn
or forkserver (the default from Python 3.14 on) are sent a pickle of them, in which functions and
classes go by the name under which they can be imported.
"""

from __future__ import annotations

import functools
import multiprocessing
import types
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from autotune.measurement import Finding, FindingCode
from autotune.trial import failures
from autotune.trial.preflight.found import Found
from autotune.trial.preflight.look import Look

_DEPTH = 12
"""Attributes of attributes that are gone into to name what has no pickle."""


def check_picklable(look: Look, found: Found) -> None:
    """Pickle the dataset and the collate function, unless workers inherit them."""
    method = multiprocessing.get_start_method()
    if method == "fork" or look.scope.max_workers == 0:
        return
    for name, part in (("dataset", look.workload.dataset), ("collate", look.workload.collate)):
        if (error := _refusal(part)) is not None:
            found.add(_finding(method, _culprit(f"data.{name}", part, error)))
            return


def _finding(method: str, culprit: str) -> Finding:
    return Finding(
        code=FindingCode.NOT_PICKLABLE,
        message=(
            f"workers start by {method} here, which sends them a pickle of what they need, and "
            f"{culprit}: only num_workers=0 is tried. Define it at the top of a module, so that "
            "workers can import it"
        ),
        max_workers=0,
    )


class _Sink:
    """Takes a pickle and keeps nothing of it."""

    def write(self, data: Any) -> int:
        return len(data)


class _Pickler(ForkingPickler):
    """Pickles as for a worker, without moving tensors into shared memory."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_leaf:
            return (int, ())
        return NotImplemented


def _refusal(value: Any) -> Exception | None:
    """Return what pickling a value raises; None if it passes."""
    try:
        _Pickler(_Sink()).dump(value)
    except Exception as error:  # PicklingError, AttributeError, TypeError or the user's own
        return error
    return None


def _culprit(path: str, value: Any, error: Exception) -> str:
    """Return the innermost part of a value that has no pickle, with its place, in words."""
    for _ in range(_DEPTH):
        for step, part in _parts(value):
            if (inner := _refusal(part)) is not None:
                path, value, error = path + step, part, inner
                break
        else:
            break
    return f"{path} is {_kind(value)} ({failures.explain(error)})"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what the pickle of a value is made of, each with the way to it."""
    if isinstance(value, (type, types.FunctionType)):
        return  # goes by its name
    if isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield from _items(value.args, ".args")
        yield from _items(value.keywords, ".keywords")
    elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
        yield from _items(value)
        yield from _attributes(value)
    else:
        yield from _attributes(value)


def _items(value: Any, of: str = "") -> Iterator[tuple[str, Any]]:
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in pairs:
        yield f"{of}[{key!r}]", item


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value's own way of pickling takes of it: its attributes, as a rule."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # the value itself has no pickle
        return
    state = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
    # With __slots__, the state is a pair of mappings.
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, Mapping):
            for name, item in part.items():
                yield f".{name}", item


def _kind(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        if value.__name__ == "<lambda>":
            return "a lambda"
        return "a function that was made inside another one"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    kind = type(value)
    local = ", a class that was made inside a function" if "<locals>" in kind.__qualname__ else ""
    return f"a {kind.__module__}.{kind.__qualname__}{local}".replace("builtins.", "")
