"""Which optimizers can be fused under a loss scaler."""

import pytest
import torch

from autotune.precision import fused_obeys_scaler


@pytest.mark.parametrize(
    ("make", "obeys"),
    [
        (lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9), False),
        (lambda weights: torch.optim.SGD(weights, lr=0.1), True),
        (lambda weights: torch.optim.Adam(weights), True),
    ],
)
def test_fused_sgd_with_momentum_does_not_obey_a_scaler(make, obeys):
    assert fused_obeys_scaler(make([torch.nn.Parameter(torch.zeros(2))])) is obeys
