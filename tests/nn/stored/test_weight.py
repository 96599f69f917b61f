import copy

import pytest
import torch

from unspool.nn.stored.formats import F32, INT8, Q8_0
from unspool.nn.stored.weight import CHUNK, StoredWeight


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


def test_what_takes_several_chunks_is_the_same(stored):
    weight = stored(Q8_0, rows=3, columns=CHUNK // 2)
    whole = weight.restore()
    assert all(torch.equal(weight.restore(slice(row, row + 1))[0], whole[row]) for row in range(3))


def test_a_short_last_block_is_cut(stored):
    weight = stored(INT8, rows=2, columns=100)
    assert weight.packed.shape == (2, 136)
    scales = weight.packed.view(-1, 68)[:, :4].contiguous().view(torch.float32)
    first = weight.packed[0, 4:68].view(torch.int8) * scales[0]
    second = weight.packed[0, 72 : 72 + 36].view(torch.int8) * scales[1]
    assert torch.equal(weight.restore()[0], torch.cat([first, second]))


def test_float32_is_used_where_it_lies(stored):
    weight = stored(F32)
    assert weight.restore().data_ptr() == weight.packed.data_ptr()


def test_copies_share_it(stored):
    weight = stored(Q8_0)
    assert copy.deepcopy(weight) is weight
    assert weight.nbytes == 6 * 16 * 34


@pytest.mark.parametrize(
    ("packed", "columns", "message"),
    [
        (torch.zeros(2, 33, dtype=torch.uint8), 32, r"2 rows of 32 numbers in Q8_0 are \[2, 34\] bytes"),
        (torch.zeros(2, 34, dtype=torch.int8), 32, "torch.int8"),
        (torch.zeros(2, 68, dtype=torch.uint8), 40, "40 numbers are no whole blocks of 32"),
        (torch.zeros(34, 2, dtype=torch.uint8).t(), 32, "contiguous"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(packed, columns, message):
    with pytest.raises(ValueError, match=message):
        StoredWeight(Q8_0, packed, (2, columns))
