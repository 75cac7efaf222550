"""One callable of a comparison: its calls, what it returns, whether it leaves inputs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autotune.errors import TimingError

_TOLERANCE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
"""Relative and absolute tolerance by dtype, those of `torch.testing.assert_close`; all others must
be equal."""


@dataclass(frozen=True)
class Agreement:
    """Whether two candidates return the same.

    Attributes:
        close: All tensors agree within the tolerance of the coarser dtype of the two.
        max_difference: Largest absolute difference; None if the two cannot be subtracted.
        note: What differs, in words; None if nothing does.
    """

    close: bool
    max_difference: float | None
    note: str | None

    def __str__(self) -> str:
        if self.note is not None:
            return self.note
        if self.max_difference == 0:
            return "equal"
        return f"close ({self.max_difference:.1g})"


class Gradients:
    """The gradients that tensors had before a comparison, to be given back after it."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def take(self, leaves: Sequence[torch.Tensor]) -> None:
        """Keep the gradients aside; the tensors have none from now on."""
        for leaf in leaves:
            self._kept.setdefault(id(leaf), (leaf, leaf.grad))
            leaf.grad = None

    def give_back(self) -> None:
        """Put the gradients back."""
        for leaf, gradient in self._kept.values():
            leaf.grad = gradient


class Call:
    """A candidate with its inputs, ready to be called again and again.

    Args:
        function: A function or module.
        args: Positional arguments.
        kwargs: Keyword arguments.
        loss: None calls the function only; else it makes a scalar of what the function returns,
            and its gradients are computed too, for every floating input and parameter.
        gradients: Keeps what the parameters had before.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        loss: Callable[[Any], torch.Tensor] | None,
        gradients: Gradients,
    ) -> None:
        self._function = function
        self._loss = loss
        self._args: Any = args if loss is None else _differentiable(tuple(args))
        self._kwargs: Any = kwargs if loss is None else _differentiable(dict(kwargs))
        self._gradients = gradients
        self._leaves: list[torch.Tensor] = []

    def __call__(self) -> None:
        """Call once. Gradients of the call before are dropped first, as a training step does."""
        self.drop_gradients()
        output = self._function(*self._args, **self._kwargs)
        if self._loss is not None:
            self._loss(output).backward()  # type: ignore[no-untyped-call]

    def results(self) -> list[tuple[str, torch.Tensor]]:
        """Call once and return copies of the outputs, and of the inputs' gradients, on the CPU.

        Finds the tensors that gradients are computed for by following the loss back to them:
        parameters that a plain function only refers to are among them.

        Raises:
            TimingError: Gradients were asked for, but the loss depends on nothing that has any.
        """
        output = self._function(*self._args, **self._kwargs)
        found = [(f"output{name}", tensor) for name, tensor in tensors(output)]
        if self._loss is not None:
            loss = self._loss(output)
            if not isinstance(loss, torch.Tensor) or loss.grad_fn is None:
                raise TimingError(
                    "backward=True, but its output depends on no floating input and no parameter "
                    "that requires a gradient. Give it one, or compare with backward=False."
                )
            self._leaves = _leaves(loss)
            self._gradients.take(self._leaves)
            loss.backward()  # type: ignore[no-untyped-call]
            for name, tensor in tensors((self._args, self._kwargs)):
                if tensor.grad is not None:
                    found.append((f"gradient of {_input_name(name)}", tensor.grad))
        # To the CPU: kept on the device, they would take memory from the others.
        return [(name, tensor.detach().to("cpu", copy=True)) for name, tensor in found]

    def drop_gradients(self) -> None:
        """Let go of the gradients."""
        for leaf in self._leaves:
            leaf.grad = None


class Inputs:
    """Copies of the inputs, to see whether a candidate changes them, and to undo it."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._originals = [
            (_input_name(name), tensor, tensor.detach().clone())
            for name, tensor in tensors((args, kwargs))
        ]

    def restore(self) -> list[str]:
        """Undo changes, and return the names of the inputs that were changed."""
        changed = []
        for name, tensor, copy in self._originals:
            if not _equal(tensor.detach(), copy):
                changed.append(name)
                with torch.no_grad():
                    tensor.copy_(copy)
        return changed


def tensors(part: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in tuples, lists and mappings, each with its place: `[0]['mask']`."""
    if isinstance(part, torch.Tensor):
        yield name, part
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from tensors(value, f"{name}[{key!r}]")
    elif isinstance(part, (tuple, list)):
        for position, value in enumerate(part):
            yield from tensors(value, f"{name}[{position}]")


def sum_of_outputs(output: Any) -> torch.Tensor:
    """Return the sum of all elements of the floating outputs: a loss, where none is given.

    Raises:
        TimingError: There is no floating tensor in the output.
    """
    sums = [tensor.sum() for _, tensor in tensors(output) if tensor.is_floating_point()]
    if not sums:
        raise TimingError(
            "backward=True, but it returns no floating tensor (in tuples, lists or mappings). Pass "
            "loss=, a function that makes a scalar of what it returns."
        )
    return torch.stack(sums).sum() if len(sums) > 1 else sums[0]


def agreement(
    found: Sequence[tuple[str, torch.Tensor]], expected: Sequence[tuple[str, torch.Tensor]]
) -> Agreement:
    """Return whether results agree with those of the reference."""
    if len(found) != len(expected):
        return Agreement(False, None, f"{len(found)} tensors, not {len(expected)}")
    close, largest, note = True, 0.0, None
    for (name, ours), (_, theirs) in zip(found, expected, strict=True):
        if ours.shape != theirs.shape:
            return Agreement(
                False, None, f"{name} has shape {tuple(ours.shape)}, not {tuple(theirs.shape)}"
            )
        relative, absolute = max(_tolerance(ours), _tolerance(theirs))
        a, b = _comparable(ours), _comparable(theirs)
        if not torch.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True):
            close = False
        same = (a == b) | (a.isnan() & b.isnan())
        difference = torch.where(same, 0.0, (a - b).abs())
        most = float(difference.max()) if difference.numel() else 0.0
        if not most <= largest:  # also where it is not a number
            largest = most
            if not close:
                dtypes = f" ({_short(ours)}, not {_short(theirs)})" * (ours.dtype != theirs.dtype)
                note = f"{name} differs by up to {most:.1g}{dtypes}"
    return Agreement(close, largest, None if close else note)


def _leaves(loss: torch.Tensor) -> list[torch.Tensor]:
    """Return the leaf tensors that a backward pass from the loss gives a gradient to."""
    found: list[torch.Tensor] = []
    seen: set[Any] = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # the node that accumulates a leaf's gradient
            found.append(node.variable)
        waiting.extend(function for function, _ in node.next_functions)
    return found


def _differentiable(part: Any) -> Any:
    """Return the same structure with floating tensors that are leaves and require a gradient.

    They share the memory of the originals, whose own `requires_grad` stays as it is.
    """
    if isinstance(part, torch.Tensor):
        if part.is_floating_point() or part.is_complex():
            return part.detach().requires_grad_()
        return part
    if type(part) is dict:
        return {key: _differentiable(value) for key, value in part.items()}
    if type(part) in (tuple, list):
        return type(part)(_differentiable(value) for value in part)
    return part


def _input_name(place: str) -> str:
    """Return the name of an input from its place in (args, kwargs)."""
    return place.replace("[0]", "args", 1) if place.startswith("[0]") else f"kwargs{place[3:]}"


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_floating_point() or a.is_complex():
        return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    return torch.equal(a, b)


def _tolerance(tensor: torch.Tensor) -> tuple[float, float]:
    return _TOLERANCE.get(tensor.dtype, (0.0, 0.0))


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _short(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
