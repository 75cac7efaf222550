"""Jobs of a user: one that is sound, and some that go wrong in ways that a trial survives."""

import os
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset, get_worker_info


class Rows(TensorDataset):
    """Random rows and their labels."""

    def __init__(self, samples=256):
        numbers = torch.Generator().manual_seed(0)
        super().__init__(torch.randn(samples, 8, generator=numbers), torch.arange(samples) % 4)


class NoWorkers(Rows):
    """Cannot be read from a worker."""

    def __getitem__(self, index):
        if get_worker_info() is not None:
            raise ValueError("the archive is open in another process")
        return super().__getitem__(index)


def build():
    return torch.nn.Linear(8, 4)


class NoRoom(torch.nn.Linear):
    """Runs out of memory above a batch of 16, the way torch says it."""

    def forward(self, rows):
        if len(rows) > 16:
            raise torch.OutOfMemoryError(f"no room for {len(rows)} rows")
        return super().forward(rows)


def build_large():
    return NoRoom(8, 4)


def scaled_loss(output, labels, scale=1.0):
    return scale * torch.nn.functional.cross_entropy(output, labels)


def collate(samples):
    rows, labels = zip(*samples, strict=True)
    return torch.stack(rows), torch.stack(labels)


def raises():
    raise FileNotFoundError("no such checkpoint: run7.pt")


def returns_a_dict():
    return {"model": build()}


def leaves():
    sys.exit(3)


def chatters():
    """Print two megabytes, and move to another folder."""
    for _ in range(100_000):
        print("epoch after epoch...")
    os.chdir("/")
    return build()


def a_loader():
    return DataLoader(Rows(), batch_size=8)


class SlowToOpen(Rows):
    """Takes its time before the first sample."""

    def __init__(self):
        super().__init__()
        time.sleep(4)


class FailsLater(torch.nn.Linear):
    """Trains the steps of the first look, and no more."""

    steps = 0

    def forward(self, rows):
        self.steps += 1
        if self.steps == 5:
            raise RuntimeError("step 5 of training")
        return super().forward(rows)


def fails_later():
    return FailsLater(8, 4)
