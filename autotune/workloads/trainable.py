"""Refuses models, losses and optimizers that one plain training step cannot do anything with."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch

from autotune.errors import WorkloadError


def check_model(model: torch.nn.Module) -> None:
    """Refuse a model that has nothing to train.

    Raises:
        WorkloadError: It has no parameter, or none that takes a gradient.
    """
    parameters = list(model.parameters())
    name = type(model).__qualname__
    if not parameters:
        raise WorkloadError(
            f"model: {name} has no parameters, so there is nothing to train. Return a "
            "torch.nn.Module whose layers are attributes of it (in a list: torch.nn.ModuleList)."
        )
    if not any(parameter.requires_grad for parameter in parameters):
        raise WorkloadError(
            f"model: all {len(parameters)} parameters of {name} are frozen "
            "(requires_grad is False), so there is nothing to train. Leave those that you train "
            "unfrozen."
        )


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer that evaluates the loss itself.

    Raises:
        WorkloadError: Its step needs a closure.
    """
    # Torch wraps the step of each class; the signature is still that of the class.
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise WorkloadError(
            f"optimizer: {type(optimizer).__qualname__} needs a closure that evaluates the loss "
            "several times in a step; what is timed here is one forward and one backward pass a "
            "step. Tune with another one, such as optimizer=sgd: how data is loaded, precision and "
            "compile are tuned all the same."
        )


def check_loss(loss: torch.Tensor) -> None:
    """Refuse a loss that no gradient can come from.

    Raises:
        WorkloadError: It does not depend on a parameter.
    """
    if not loss.requires_grad:
        raise WorkloadError(
            "loss: it does not depend on any parameter that is trained, so it has no gradient. "
            "Look for .detach(), .item(), torch.no_grad() or an argmax between the model and the "
            "loss."
        )


def check_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Refuse a backward pass that gave no parameter of the optimizer a gradient.

    Raises:
        WorkloadError: There is none.
    """
    if not any(parameter.grad is not None for parameter in _parameters(optimizer)):
        raise WorkloadError(
            f"optimizer: none of the parameters of {type(optimizer).__qualname__} got a gradient, "
            "so its step changes nothing. Give it the parameters that the loss depends on."
        )


def _parameters(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])
