"""Jobs that train well without workers and cannot have all that a search would try."""

import multiprocessing

import torch
from healthy import Numbers


class Unpickled(Numbers):
    """Holds a lambda; only spawned workers mind."""

    def __init__(self, samples=64):
        super().__init__(samples)
        self.transform = lambda row: row / 64


class Spawning(Unpickled):
    """Of a module that chooses the start method itself."""

    def __init__(self, samples=64):
        super().__init__(samples)
        multiprocessing.set_start_method("spawn", force=True)


def collate_in_a_function():
    def collate(samples):
        rows, labels = zip(*samples, strict=True)
        return torch.stack(rows), torch.tensor(labels)

    return collate


unpickled_collate = collate_in_a_function()
