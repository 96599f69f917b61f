import numba
import numpy as np
import pytest

from unspool.engine import sampling, sampling_passes
from unspool.engine.sampling_passes import BLOCK


@numba.njit
def invert(size, u, room):
    whole = sampling_passes.weigh_again(size, room)
    block, before = sampling.find_block(size, u * whole, room)
    return sampling.find_token(size, whole, u, block, before, room)


@pytest.mark.parametrize(
    ("u", "token"), [(1e-9, 0), (0.19, 0), (0.21, 2), (0.69, 2), (0.71, 3), (0.999999, 3)]
)
def test_by_hand(listed, u, token):
    room = listed(np.zeros(4, np.float32), [2, 0, 5, 3])
    assert tuple(invert(4, u, room)) == (token, True)


@pytest.mark.parametrize("u", [0.0, 0.2, 0.2 + 1e-9, 0.7 - 1e-9, 1 - 1e-16])
def test_borders_are_in_doubt(listed, u):
    room = listed(np.zeros(4, np.float32), [2, 0, 5, 3])
    place, sure = invert(4, u, room)
    assert not sure
    assert 0 <= place < 4


@pytest.mark.parametrize("size", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1000])
def test_two_levels_are_one_cumulative_sum(listed, size):
    dice = np.random.default_rng(size)
    weight = (dice.random(size) ** 8).astype(np.float32)
    weight[dice.random(size) < 0.5] = 0
    weight[size // 2] = 0.5
    room = listed(np.zeros(size, np.float32), weight)
    upto = weight.astype(np.float64).cumsum()
    for u in dice.random(50):
        place, sure = invert(size, u, room)
        assert not sure or place == np.searchsorted(upto, u * upto[-1], side="right")
