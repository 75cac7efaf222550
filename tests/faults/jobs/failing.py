"""Jobs that fail in one way each, in the dresses that faults of users' jobs wear."""

import os
import signal

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

FULL = 24
"""Samples that fit; one more does not."""


class Numbers(Dataset):
    """Rows of eight numbers with one of four labels; sample 37 is the odd one."""

    def __init__(self, samples=64):
        self._samples = samples

    def __len__(self):
        return self._samples

    def __getitem__(self, index):
        if index == 37:
            self.odd()
        return torch.full((8,), index / 64), index % 4

    def odd(self):
        """Do what sample 37 does."""


class BadImageError(Exception):
    """An exception that its own text cannot rebuild."""

    def __init__(self, index, reason):
        super().__init__(f"sample {index}: {reason}")


class Corrupt(Numbers):
    def odd(self):
        raise BadImageError(37, "truncated header")


class EndsEarly(Numbers):
    """Reads a truncated file: the same type of error as a lost worker."""

    def odd(self):
        raise EOFError("Ran out of input")


class Unreachable(Numbers):
    def odd(self):
        raise ConnectionResetError("the image server hung up")


class Greedy(Numbers):
    def odd(self):
        raise MemoryError("no room for the decoded image")


class Killed(Numbers):
    """Loses a worker to a signal."""

    number = signal.SIGKILL

    def odd(self):
        if get_worker_info() is not None:
            os.kill(os.getpid(), self.number)


class BusError(Killed):
    number = signal.SIGBUS


class Segfault(Killed):
    number = signal.SIGSEGV


class Unpickled(Numbers):
    """Holds a lambda; only spawned workers mind."""

    def __init__(self):
        super().__init__()
        self.transform = lambda row: row


class Unequal(Numbers):
    def __getitem__(self, index):
        return torch.ones(8 + index % 2), index % 4


class Stream(IterableDataset):
    """97 samples without a length: the last batch of 8 or 16 holds one."""

    def __iter__(self):
        for index in range(97):
            yield torch.full((8,), index / 97), index % 4


class WrongLabel(Numbers):
    """Has one label more than the model has outputs."""

    def __getitem__(self, index):
        return torch.ones(8), index % 5


class Refusing(torch.nn.Linear):
    """Refuses batches above `FULL` with whatever `refuse` raises."""

    def __init__(self, refuse):
        super().__init__(8, 4)
        self._refuse = refuse

    def forward(self, rows):
        if len(rows) > FULL:
            self._refuse(len(rows))
        return super().forward(rows)


class StepError(Exception):
    """A user's own wrapper."""


def _plain(rows):
    raise torch.OutOfMemoryError(f"CUDA out of memory: no room for {rows} rows")


def _cublas(rows):
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def _mps(rows):
    raise RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)")


def _xpu(rows):
    raise RuntimeError(
        "Native API failed. Native API returns: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"
    )


def _host(rows):
    torch.empty(2**60)


def _wrapped(rows):
    try:
        _plain(rows)
    except torch.OutOfMemoryError as error:
        raise StepError("the step failed") from error


def _hidden(rows):
    try:
        _plain(rows)
    except torch.OutOfMemoryError:
        raise StepError("the step failed") from None


def _group(rows):
    try:
        _plain(rows)
    except torch.OutOfMemoryError as error:
        raise ExceptionGroup("two ranks failed", [ValueError("rank 0"), error]) from None


def _errno(rows):
    raise OSError(12, "Cannot allocate memory")


def _cudnn(rows):
    raise RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")


def _grid(rows):
    raise RuntimeError("CUDA error: invalid configuration argument")


def refusing(how):
    return Refusing(globals()[f"_{how}"])


def normed():
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)
    )


class Pooling(torch.nn.Module):
    """Scatters into a float32 buffer, which autocast breaks."""

    def __init__(self):
        super().__init__()
        self.encode, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, rows):
        groups = torch.arange(len(rows)) % 4
        pooled = torch.zeros(4, 16).index_add(0, groups, self.encode(rows))
        return self.head(pooled[groups])


def without_a_compiler():
    """Compiles by a program that does not exist."""
    import torch._inductor.config as inductor

    os.environ["CXX"] = "/no/such/compiler"
    inductor.cpp.cxx = (None, "/no/such/compiler")
    inductor.force_disable_caches = True
    return normed()


class Shapes(torch.nn.Module):
    """Meets another length in each step, which torch.compile compiles for anew."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(1, 4)
        self.steps = 0

    def forward(self, rows):
        self.steps += 1
        return self.core(rows[:, : 1 + self.steps % 8])

    def core(self, rows):
        return self.head(rows.mean(1, keepdim=True))


def frozen():
    return torch.nn.Linear(8, 4).requires_grad_(False)


def empty():
    return torch.nn.Flatten()


def deaf(rows, labels):
    """A loss that lets no gradient through."""
    return torch.nn.functional.cross_entropy(rows.detach(), labels)


def several(rows, labels):
    return torch.nn.functional.cross_entropy(rows, labels), {"accuracy": 0.5}


def nothing(rows, labels):
    torch.nn.functional.cross_entropy(rows, labels)


def number(rows, labels):
    return torch.nn.functional.cross_entropy(rows, labels).item()


def whole(rows, labels):
    return torch.nn.functional.cross_entropy(rows, labels, reduction="none")


def not_a_number(rows, labels):
    return torch.nn.functional.cross_entropy(rows, labels) * float("nan")


def nan_of_one(rows, labels):
    """The deviation within the batch, which one sample has none of."""
    loss = torch.nn.functional.cross_entropy(rows, labels, reduction="none")
    return loss.mean() + 0.0 * loss.std()


def stranger(parameters, lr=0.1):
    """An optimizer of other parameters than the model's."""
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=lr)


def lbfgs(parameters):
    return torch.optim.LBFGS(parameters)


def sparse_adam(parameters):
    return torch.optim.SparseAdam(parameters)
