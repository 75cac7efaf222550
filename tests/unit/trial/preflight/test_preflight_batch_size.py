"""Whether the size of the batches follows the batch size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from autotune.measurement import FindingCode
from autotune.trial.preflight.batch_size import check_batch_size
from autotune.trial.preflight.found import Found

ROWS = TensorDataset(torch.randn(64, 8), torch.arange(64) % 4)


def codes(look: Any) -> list[FindingCode]:
    found = Found()
    check_batch_size(look, found)
    return [each.code for each in found.preflight.findings]


def six(samples: list[Any]) -> Any:
    """Pad or cut to six, whatever comes."""
    return default_collate((samples * 6)[:6])


def uneven(samples: list[Any]) -> Any:
    """Leave one sample in four out, as broken images are."""
    return default_collate(samples[: max(1, 3 * len(samples) // 4)])


def views(samples: list[Any]) -> Any:
    """Two views of each sample: twice the rows."""
    return default_collate(samples + samples)


class SixAtOnce(TensorDataset):
    """Fetches whole batches as it likes."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in range(6)]


class Stream(IterableDataset[Any]):
    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.ones(8), 0)] * self._samples)


@pytest.mark.parametrize("collate", [None, uneven, views])
def test_a_batch_that_grows_is_fine(look_at, collate):
    assert codes(look_at(ROWS, collate=collate)) == []


@pytest.mark.parametrize(
    ("data", "collate"), [(ROWS, six), (SixAtOnce(*ROWS.tensors), None), (Stream(200), six)]
)
def test_a_batch_of_a_size_of_its_own(look_at, data, collate):
    found = Found()
    check_batch_size(look_at(data, collate=collate), found)
    (finding,) = found.preflight.findings
    assert finding.code is FindingCode.BATCH_SIZE_IGNORED
    assert finding.kept == ("batch_size",)
    assert "32 were asked for and a batch of 6 came" in finding.message


@pytest.mark.parametrize("samples", [3, 10, 33])
def test_data_that_end_early_are_not_taken_for_disobedience(look_at, samples):
    assert codes(look_at(Stream(samples))) == []
    assert codes(look_at(torch.utils.data.Subset(ROWS, range(samples)))) == []
