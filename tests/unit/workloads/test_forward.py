from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch

from autotune.errors import WorkloadError
from autotune.workloads.forward import forward_loss
from autotune.workloads.workload import Workload

ONES = torch.ones(2)
Pair = namedtuple("Pair", "x y")


def workload(loss) -> Workload:
    return Workload(
        dataset=None,
        collate=None,
        build_model=lambda: None,
        loss=loss,
        build_optimizer=lambda: None,
        shuffle=False,
        drop_last=False,
        resident=False,
    )


def difference(output, target):
    return (output - target).sum()


@pytest.mark.parametrize("kind", [tuple, list, lambda parts: Pair(*parts)])
def test_last_element_is_the_target(kind):
    batch = kind([3 * ONES, ONES])
    assert forward_loss(workload(difference), lambda x: 2 * x, batch) == 10.0


def test_several_inputs():
    batch = (ONES, 2 * ONES, 4 * ONES)
    assert forward_loss(workload(difference), lambda a, b: a * b, batch) == -4.0


def test_mapping_with_a_loss():
    batch = {"x": ONES, "y": 3 * ONES}
    loss = forward_loss(
        workload(lambda output, whole: (output - whole["y"]).sum()), lambda x, y: x, batch
    )
    assert loss == -4.0


@pytest.mark.parametrize(
    "output",
    [
        lambda x, y: (x * y).sum(),
        lambda x, y: SimpleNamespace(loss=(x * y).sum()),
        lambda x, y: {"loss": (x * y).sum(), "logits": x},
    ],
)
@pytest.mark.parametrize("batch", [{"x": ONES, "y": 3 * ONES}, (ONES, 3 * ONES)])
def test_model_with_its_own_loss(output, batch):
    assert forward_loss(workload(None), output, batch) == 6.0


def test_bare_tensor_for_a_model_with_its_own_loss():
    assert forward_loss(workload(None), torch.sum, ONES) == 2.0


@pytest.mark.parametrize(
    ("loss", "model", "batch", "words"),
    [
        (difference, lambda x: x, ONES, "a batch is a Tensor; a loss needs a tuple or list"),
        (difference, lambda x: x, (ONES,), "1 element.*target"),
        (lambda output, target: output, lambda x: x, (ONES, ONES), r"loss: .*shape \(2,\)"),
        (lambda output, target: 1.0, lambda x: x, (ONES, ONES), "loss: got a float"),
        (None, lambda x: x, {"x": ONES}, r"model: got a tensor of shape \(2,\)"),
        (None, lambda x: {"logits": x}, {"x": ONES}, r"keys \['logits'\]"),
        (None, lambda x: SimpleNamespace(loss=None), {"x": ONES}, "must return its loss"),
    ],
)
def test_anything_else_is_refused(loss, model, batch, words: str):
    with pytest.raises(WorkloadError, match=words):
        forward_loss(workload(loss), model, batch)


def test_loss_can_be_differentiated():
    model = torch.nn.Linear(2, 2)
    loss = forward_loss(
        workload(torch.nn.CrossEntropyLoss()), model, (torch.ones(3, 2), torch.tensor([0, 1, 0]))
    )
    loss.backward()
    assert model.weight.grad is not None
