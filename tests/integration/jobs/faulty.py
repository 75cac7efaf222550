"""Jobs that go wrong, each in one way. Importable by a trial's process."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import torch
from torch.utils.data import Dataset


class Numbers(Dataset):
    """Rows that a linear model of eight inputs can train on."""

    def __init__(self, samples=64):
        self._samples = samples

    def __len__(self):
        return self._samples

    def __getitem__(self, index):
        return torch.full((8,), float(index)), index % 4


class Corrupt(Numbers):
    def __getitem__(self, index):
        if index == 37:
            raise OSError("sample 37: truncated header")
        return super().__getitem__(index)


class Deadly(Numbers):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None and index == 37:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Sleepy(Numbers):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None and index == 37:
            time.sleep(3600)
        return super().__getitem__(index)


def linear():
    return torch.nn.Linear(8, 4)


class Unprofiled(torch.nn.Linear):
    """A model that ends badly in its first step under the profiler."""

    def __init__(self, end):
        super().__init__(8, 4)
        self._end = end

    def forward(self, inputs):
        if torch.autograd._profiler_enabled():
            self._end()
        return super().forward(inputs)


def hanging_under_the_profiler():
    return Unprofiled(lambda: time.sleep(3600))


def dying_under_the_profiler():
    return Unprofiled(lambda: os.kill(os.getpid(), signal.SIGKILL))


def leaving_under_the_profiler():
    return Unprofiled(lambda: sys.exit("enough"))


def telling():
    """Say how this process would start loader workers."""
    print(f"start method: {multiprocessing.get_start_method()}", flush=True)
    return linear()


def exploding():
    model = torch.nn.Linear(8, 4)
    torch.nn.init.constant_(model.weight, float("inf"))
    return model


def leaving():
    sys.exit(3)


def segfaulting():
    os.kill(os.getpid(), signal.SIGSEGV)


def raising():
    raise ValueError("the user's own words")


def spawning():
    """Leave a grandchild in a session of its own, then hang."""
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    print(f"grandchild {child.pid}", flush=True)
    time.sleep(3600)


class Hungry(torch.nn.Linear):
    """Runs out of memory above a batch of 16, the way torch says it."""

    def forward(self, rows):
        if len(rows) > 16:
            raise torch.OutOfMemoryError(f"no room for {len(rows)} rows")
        return super().forward(rows)


def hungry():
    return Hungry(8, 4)
