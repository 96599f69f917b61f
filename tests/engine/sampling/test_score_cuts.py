import math

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.engine import truncation
from unspool.engine.sampling_passes import ALIVE, Scratch

from .conftest import filled_up, made


@numba.njit
def kth_largest(score, size, k, peak, room):
    return truncation.kth_largest(score, size, k, peak, room)


@numba.njit
def floors(value, base, whole, below, peak, sigma):
    return (
        truncation.epsilon(value, base, whole)[0],
        truncation.eta(value, base, whole, below)[0],
        truncation.top_a(value, base, whole, peak)[0],
        truncation.min_p(value, peak)[0],
        truncation.top_n_sigma(value, peak, sigma, 0.0)[0],
    )


def test_by_hand():
    # p = 0.05, 0.5, 0.15, 0.3: base log ½, Z = 2, H = 1.1421, m = H − log 2
    base = math.log(0.5)
    epsilon, eta, top_a, min_p, sigma = floors(0.16, base, 2.0, 1.1421 - math.log(2), base, 0.859)
    assert math.exp(epsilon) == pytest.approx(0.16)
    assert math.exp(eta) == pytest.approx(min(0.16, 0.4 * math.exp(-1.1421)))
    assert math.exp(top_a) == pytest.approx(0.16 * 0.25)
    assert math.exp(min_p) == pytest.approx(0.16 * 0.5)
    assert sigma == pytest.approx(base - 0.16 * 0.859)


def test_nothing_asks_for_nothing():
    epsilon, eta, top_a, min_p, _ = floors(0.0, 0.0, 2.0, 1.0, 0.0, 1.0)
    assert epsilon == eta == top_a == min_p == -math.inf


@pytest.mark.parametrize("alive", [1, 7, 300])
def test_ties_are_kept_where_k_is_more_than_they_are(alive):
    scores = np.full(300, -np.inf, np.float32)
    scores[:alive] = 1
    room = Scratch(*made(300))
    room.score[:300] = scores
    room.near_key[:] = 1e17  # of somebody before
    filled_up(room, 300)
    assert (scores >= kth_largest(room.score, 300, 154, np.float32(1), room)).sum() == alive


@settings(deadline=None, max_examples=100)
@given(
    size=st.sampled_from([1, 2, 17, 63, 64, 300, 1000, 5000]),
    share=st.floats(0, 1),
    levels=st.sampled_from([1, 5, 10**6]),
    cut=st.sampled_from([0.0, 0.5, 0.99]),
    seed=st.integers(0, 2**30),
)
def test_the_kth_largest_is_what_sorting_finds(size, share, levels, cut, seed):
    dice = np.random.default_rng(seed)
    scores = (dice.integers(levels, size=size) / 3).astype(np.float32)
    scores[dice.random(size) < cut] = -np.inf
    scores[size // 2] = 1
    for k in {1, max(1, int(share * size)), max(1, int(share * size) // 100)}:
        room = Scratch(*made(size))
        room.score[:size] = scores
        filled_up(room, size)
        found = kth_largest(room.score, size, k, scores.max(), room)
        expected = max(np.sort(scores)[-k], ALIVE)
        assert ((scores >= found) == (scores >= expected)).all()
