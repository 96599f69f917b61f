import copy

import pytest
import torch

from unspool.engine.stored_weights import CHUNK_FLOATS, StoredWeight
from unspool.engine.weight_formats import F32, INT8, Q8_0


def test_some_rows_are_the_same_as_all(kind, stored):
    weight = stored(kind)
    whole = weight.restore()
    assert whole.shape == (6, 512)
    assert whole.dtype == torch.float32
    assert torch.equal(weight.restore(slice(2, 5)), whole[2:5])
    assert torch.equal(weight.restore(torch.tensor([5, 0, 5])), whole[[5, 0, 5]])
    out = torch.zeros(2, 512)
    assert weight.restore(slice(1, 3), out) is out
    assert torch.equal(out, whole[1:3])


def test_several_chunks_give_the_same_numbers(stored):
    weight = stored(Q8_0, rows=3, columns=CHUNK_FLOATS // 2)
    whole = weight.restore()
    assert all(torch.equal(weight.restore(slice(row, row + 1))[0], whole[row]) for row in range(3))


def test_a_short_last_block_is_cut(stored):
    weight = stored(INT8, rows=2, columns=100)
    assert weight.packed.shape == (1, 16 * 136)  # of 16 rows side by side
    blocks = weight.packed.view(2, 16 * 68)
    scales = blocks[:, :64].contiguous().view(torch.float32)[:, 1]
    numbers = blocks[:, 64:].view(2, 16, 16, 4)[:, :, 1].reshape(2, 64).float() - 128
    assert torch.equal(weight.restore()[1], (numbers * scales[:, None]).flatten()[:100])


@pytest.mark.parametrize("rows", [slice(3, 40), slice(16, 32), slice(0, 0), torch.tensor([49, 0, 17, 17, 3])])
def test_interleaved_rows_are_restored_one_by_one(stored, rows):
    for columns in (100, CHUNK_FLOATS // 20):  # all in one go, and several
        weight = stored(INT8, rows=50, columns=columns)
        assert torch.equal(weight.restore(rows), weight.restore()[rows])
        out = torch.full((len(weight.restore()[rows]), columns), -77.0)
        assert torch.equal(weight.restore(rows, out), weight.restore()[rows])


def test_float32_is_not_copied(stored):
    weight = stored(F32)
    assert weight.restore().data_ptr() == weight.packed.data_ptr()


def test_copies_share_it(stored):
    weight = stored(Q8_0)
    assert copy.deepcopy(weight) is weight


@pytest.mark.parametrize(
    ("packed", "columns", "message"),
    [
        (torch.zeros(2, 33, dtype=torch.uint8), 32, r"Q8_0 matrix of 2 × 32 is a uint8 tensor \[2, 34\]"),
        (torch.zeros(2, 34, dtype=torch.int8), 32, "torch.int8"),
        (torch.zeros(2, 68, dtype=torch.uint8), 40, "40 columns are not a multiple of 32"),
        (torch.zeros(34, 2, dtype=torch.uint8).t(), 32, "contiguous"),
    ],
)
def test_packed_data_of_the_wrong_shape_is_refused(packed, columns, message):
    with pytest.raises(ValueError, match=message):
        StoredWeight(Q8_0, packed, (2, columns))
