import numba
import numpy as np
import pytest

from unspool.engine import sampling, sampling_passes
from unspool.engine.sampling_passes import BLOCK


@numba.njit
def invert(size, u, scratch):
    whole = sampling_passes.sum_weights(size, scratch)
    block, before = sampling.find_block(size, u * whole, scratch)
    return sampling.find_token(size, whole, u, block, before, scratch)


@pytest.mark.parametrize(
    ("u", "token"), [(1e-9, 0), (0.19, 0), (0.21, 2), (0.69, 2), (0.71, 3), (0.999999, 3)]
)
def test_by_hand(listed, u, token):
    scratch = listed(np.zeros(4, np.float32), [2, 0, 5, 3])
    assert tuple(invert(4, u, scratch)) == (token, True)


@pytest.mark.parametrize("u", [0.0, 0.2, 0.2 + 1e-9, 0.7 - 1e-9, 1 - 1e-16])
def test_borders_are_not_certain(listed, u):
    scratch = listed(np.zeros(4, np.float32), [2, 0, 5, 3])
    place, sure = invert(4, u, scratch)
    assert not sure
    assert 0 <= place < 4


@pytest.mark.parametrize("size", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1000])
def test_two_levels_are_one_cumulative_sum(listed, size):
    rng = np.random.default_rng(size)
    weight = (rng.random(size) ** 8).astype(np.float32)
    weight[rng.random(size) < 0.5] = 0
    weight[size // 2] = 0.5
    scratch = listed(np.zeros(size, np.float32), weight)
    upto = weight.astype(np.float64).cumsum()
    for u in rng.random(50):
        place, sure = invert(size, u, scratch)
        assert not sure or place == np.searchsorted(upto, u * upto[-1], side="right")


@numba.njit
def invert_exactly(score, size, u):
    return sampling.find_token_exactly(score, size, 0.0, u)


@pytest.mark.parametrize(("nudge", "token"), [(-1e-9, 0), (1e-9, 2)])
def test_a_share_that_float32_cannot_decide_is_decided_in_float64(listed, nudge, token):
    scratch = listed(np.array([0.3, -np.inf, 1.1, 0.7], np.float32))
    weights = np.exp(scratch.score[:4].astype(np.float64))
    border = weights[0] / weights.sum()
    place, sure, share = invert_exactly(scratch.score, 4, border + nudge)
    assert (place, sure) == (token, True)
    assert share == pytest.approx(weights[token] / weights.sum(), rel=1e-14)
    assert not invert_exactly(scratch.score, 4, border)[1]
