"""The parts of a job that has no fault."""

import torch
from torch.utils.data import Dataset


class Numbers(Dataset):
    """Rows of eight numbers with one of four labels."""

    def __init__(self, samples=64):
        self._samples = samples

    def __len__(self):
        return self._samples

    def __getitem__(self, index):
        return torch.full((8,), float(index)), index % 4


def linear():
    return torch.nn.Linear(8, 4)
