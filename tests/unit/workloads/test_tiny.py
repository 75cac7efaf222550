import time

import pytest
import torch

from autotune.workloads.tiny import tiny_images, tiny_model


@pytest.mark.parametrize("size", [32, 224])
def test_model_takes_images_of_any_size(size: int):
    assert tiny_model(classes=7)(torch.zeros(2, 3, size, size)).shape == (2, 7)


def test_images_depend_on_the_seed():
    first, again, other = tiny_images(), tiny_images(), tiny_images(seed=1)
    assert torch.equal(first[5][0], again[5][0])
    assert not torch.equal(first[5][0], other[5][0])
    assert first[5][0].shape == (3, 32, 32)
    assert first[15][1] == 5


def test_length():
    assert len(tiny_images(samples=3)) == 3
    assert len(list(tiny_images(samples=3))) == 3


def test_delay_waits(monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    tiny_images(delay_ms=2.5)[0]
    tiny_images()[0]
    assert waits == [0.0025]


def test_model_learns_the_label():
    torch.manual_seed(0)
    model = tiny_model(classes=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = tiny_images(samples=32, classes=2)
    images = torch.stack([image for image, _ in data])
    labels = torch.tensor([label for _, label in data])
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
