"""From a batch to its loss. Runs inside the timed step, so it does no more than it must."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from autotune.errors import WorkloadError
from autotune.workloads.workload import Workload


def forward_loss(workload: Workload, model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Return the scalar loss of a batch.

    | batch          | with a loss                     | without                            |
    |----------------|---------------------------------|------------------------------------|
    | tuple or list  | `loss(model(*inputs), target)`  | `model(*batch)`, target included   |
    | mapping        | `loss(model(**batch), batch)`   | `model(**batch)`                   |
    | anything else  | (an error)                      | `model(batch)`                     |

    The target is the last element. Without a loss, the model's output is the loss, or holds it as
    `.loss` or `["loss"]`.

    Args:
        workload: Tells the loss.
        model: The model, compiled or not.
        batch: A batch on the model's device.

    Raises:
        WorkloadError: The batch has another structure, or what came out is no scalar tensor.
    """
    loss = workload.loss
    if isinstance(batch, (tuple, list)):
        if loss is None:
            result = _own_loss(model(*batch))
        elif len(batch) > 1:
            result = loss(model(*batch[:-1]), batch[-1])
        else:
            raise WorkloadError(
                f"data: a batch has {len(batch)} element(s); a loss needs inputs and, last, the "
                "target. Return both from the dataset, or use loss=none if the model returns its "
                "own loss."
            )
    elif isinstance(batch, Mapping):
        output = model(**batch)
        result = _own_loss(output) if loss is None else loss(output, batch)
    elif loss is None:
        result = _own_loss(model(batch))
    else:
        raise WorkloadError(
            f"data: a batch is a {type(batch).__name__}; a loss needs a tuple or list (inputs "
            "and, last, the target) or a mapping. Change data.collate, or use loss=none if the "
            "model returns its own loss."
        )
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        raise WorkloadError(
            f"{'model' if loss is None else 'loss'}: got {_describe(result)} as the loss; "
            f"expected a tensor with one element. {_remedy(result)}"
        )
    return result


def _own_loss(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output
    if (loss := getattr(output, "loss", None)) is not None:
        return loss
    if isinstance(output, Mapping) and output.get("loss") is not None:
        return output["loss"]
    raise WorkloadError(
        f"model: with loss=none the model must return its loss: a scalar tensor, .loss or "
        f"['loss']; got {_describe(output)} without one. Give labels in the batch, or set "
        "loss._target_."
    )


def _remedy(result: Any) -> str:
    if isinstance(result, torch.Tensor):
        return "Reduce it, for example with .mean()."
    if isinstance(result, (int, float)):
        return "Return the tensor itself, not its .item()."
    if result is None:
        return "Return it."
    return "Return nothing but the loss."


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with keys {sorted(map(str, value))}"
    if value is None:
        return "None"
    return f"a {type(value).__name__}"
