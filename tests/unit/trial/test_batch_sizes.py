from collections import namedtuple

import torch
from torch.nn.utils.rnn import pack_sequence

from autotune.trial.batch_sizes import BatchSizes
from autotune.workloads.batch import batch_bytes, batch_size_of

Pair = namedtuple("Pair", "tokens labels")


def test_bytes_of_nested_batches():
    tokens, labels = torch.zeros(4, 10, dtype=torch.int64), torch.zeros(4, dtype=torch.int32)
    assert batch_bytes(Pair(tokens, {"labels": [labels, "name"]})) == 4 * 10 * 8 + 4 * 4
    assert batch_bytes("nothing") == 0
    assert batch_bytes(torch.eye(3).to_sparse()) == 0


def test_a_packed_sequence_counts_whole_though_its_samples_are_those_of_its_first_step():
    packed = pack_sequence([torch.zeros(5, 2), torch.zeros(3, 2)])
    assert batch_bytes([packed]) == (5 + 3) * 2 * 4
    assert batch_size_of([packed]) == 2


def test_the_widest_batch_is_kept_and_varying_ones_are_told():
    sizes = BatchSizes()
    assert (sizes.largest_bytes, sizes.note()) == (None, None)
    batches = [torch.zeros(4, length) for length in (10, 10, 10, 30)]
    assert list(sizes.watch(batches)) is not batches
    assert sizes.largest_bytes == 4 * 30 * 4
    assert "the widest of 4 held 2.0 x the mean" in sizes.note()


def test_batches_of_one_size_need_no_note():
    sizes = BatchSizes()
    for batch in sizes.watch(torch.zeros(3, 4, 4)):
        assert batch.shape == (4, 4)
    assert sizes.note() is None
