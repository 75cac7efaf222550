from __future__ import annotations

import math

import pytest
import torch

from autotune.trial.first_steps import FirstSteps, SkipCounter, StepWatch


def seen(losses: tuple[float, ...], skipped: tuple[bool, ...] | None) -> FirstSteps:
    norms = tuple(10 + loss for loss in losses)
    return FirstSteps(losses=losses, gradient_norms=norms, skipped=skipped, weights="")


def test_a_skipped_step_leaves_the_curve_where_it_was() -> None:
    found = seen((3.0, 3.0, 3.0, 2.0, 2.0, 1.0), (True, True, False, True, False, False))
    assert found.curve == (3.0, 2.0, 1.0)
    assert found.gradient_norm == 13.0


def test_without_a_scaler_every_step_counts() -> None:
    found = seen((3.0, 2.0), None)
    assert found.curve == (3.0, 2.0)
    assert found.gradient_norm == 13.0


def test_where_all_are_skipped_only_the_first_loss_is_left() -> None:
    found = seen((3.0, 3.0), (True, True))
    assert found.curve == (3.0,)
    assert found.gradient_norm is None


@pytest.mark.parametrize("fused", [False, True])
def test_skipped_steps_are_told_from_the_others(fused: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    counter = SkipCounter(optimizer)
    for factor in (1.0, math.inf, 1.0, math.nan):
        before = weight.detach().clone()
        scaler.scale((factor * weight).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        counter.end_step()
        assert torch.equal(before, weight.detach()) is (factor != 1.0)
    assert counter.flags() == (False, True, False, True)
    assert counter.flags(2) == (False, True)
    assert counter.flags(0, 1) == (False,)


def test_the_watch_keeps_a_loss_that_the_next_step_overwrites() -> None:
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    weight.grad = torch.tensor([3.0, 4.0])
    watch = StepWatch(2, [weight])
    static = torch.tensor(7.0)  # as a CUDA graph's output
    for value in (1.0, 2.0, 3.0):
        watch.see(static.fill_(value))
    assert watch.losses(8) == (1.0, 2.0)
    assert watch.norms(1) == (5.0,)
