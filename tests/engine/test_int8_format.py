import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.engine.stored_weights import CHUNK_FLOATS, StoredWeight, quantise_int8, requantise_int8
from unspool.engine.weight_formats import BF16, INT8, Q8_0


def scales(stored):
    """(rows, groups): a set's scales stand before its numbers, those of all rows of a group side by side."""
    rows = stored.shape[0]
    blocks = stored.packed.view(len(stored.packed), -1, 16 * 68)[..., :64].contiguous().view(torch.float32)
    return blocks.transpose(1, 2).flatten(0, 1)[:rows]


def test_hand_computed():
    weight = torch.zeros(2, 65)
    weight[1, 0], weight[1, 1], weight[1, 5], weight[1, 64] = 254.0, -3.0, 127.0, 0.5
    stored = quantise_int8(weight)
    assert stored.packed.shape == (1, 2 * 16 * 68)
    assert scales(stored).tolist() == [[0.0, 0.0], [2.0, pytest.approx(0.5 / 127)]]
    first, second = (block[64:].view(16, 16, 4) for block in stored.packed.view(2, 16 * 68))
    # Four numbers of every row, then the next four. −3/2 lies between −2 and −1: ties go to the even one;
    # so they do for 127/2.
    assert first[0, 1].tolist() == [128 + 127, 128 - 2, 128, 128]
    assert first[1, 1].tolist() == [128, 128 + 64, 128, 128]
    assert second[0, 1].tolist() == [128 + 127, 128, 128, 128]
    assert int((first != 128).sum() + (second != 128).sum()) == 4  # padding is 0
    assert stored.restore()[1, :2].tolist() == [254.0, -4.0]
    assert stored.restore()[1, 64] == pytest.approx(0.5)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 35), st.integers(1, 200), st.integers(0, 2**31), st.sampled_from([1e-30, 1e-3, 1.0, 1e30])
)
def test_errors_are_at_most_half_a_step(rows, columns, seed, size):
    weight = size * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    stored = quantise_int8(weight)
    assert stored.shape == (rows, columns)
    step = scales(stored).repeat_interleave(INT8.block, dim=1)[:, :columns]
    assert ((stored.restore() - weight).abs() <= 0.5001 * step).all()
    # what has been rounded is not rounded again
    assert torch.allclose(quantise_int8(stored.restore()).restore(), stored.restore(), rtol=1e-6, atol=0)


def test_zeros_and_the_smallest_numbers():
    weight = torch.zeros(3, 64)
    weight[1] = 1e-45
    weight[2] = 3e38
    stored = quantise_int8(weight)
    assert stored.restore()[0].tolist() == [0.0] * 64
    assert stored.restore()[1].abs().max() <= 1e-43
    assert torch.allclose(stored.restore()[2], weight[2])


def test_half_precision_and_many_chunks():
    weight = torch.randn(5, CHUNK_FLOATS // 2).bfloat16()
    stored = quantise_int8(weight)
    assert torch.equal(stored.restore(slice(3, 4)), quantise_int8(weight[3:4]).restore())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_are_refused(bad):
    weight = torch.zeros(2, 64)
    weight[1, 3] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        quantise_int8(weight)


@pytest.mark.parametrize("kept", [BF16, Q8_0])
def test_quantising_stored_weights_equals_quantising_their_numbers(kept):
    packed = torch.randint(0, 100, (600, kept.row_bytes(576)), dtype=torch.uint8)
    stored = StoredWeight(kept, packed, (600, 576))
    small = requantise_int8(stored)
    assert torch.equal(small.packed, quantise_int8(stored.restore()).packed)
    assert (small.format, small.shape) == (INT8, stored.shape)
