import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.basis.distribution import Distribution, probabilities
from unspool.basis.kappa import kappa


def test_four_tokens_in_order_and_in_sums():
    dist = Distribution(np.array([0.1, 0.4, 0.0, 0.3, 0.2]), 2, head=3)
    assert dist.order_N.tolist() == [1, 3, 4]
    np.testing.assert_allclose(dist.mass_N, [1.0, 0.6, 0.3, 0.1])
    np.testing.assert_allclose(dist.squares_N, [0.3, 0.14, 0.05, 0.01])
    assert dist.support == 4
    assert dist.rank(3) == 1
    assert dist.rank(0) == 5
    assert dist.ranks(np.array([4, 1])).tolist() == [2, 0]
    assert dist.kappa == pytest.approx(2 / 1.0)
    dist.extend(5)
    assert dist.order_N.tolist() == [1, 3, 4, 0]
    assert dist.rank(0) == 3


@given(st.integers(0, 500), st.integers(1, 20), st.integers(1, 40))
def test_sums_and_scale_are_those_of_the_whole(seed, m, head):
    p = np.random.default_rng(seed).dirichlet(np.full(40, 0.5)) + 1e-9
    p /= p.sum()
    dist, order = Distribution(p, m, head), np.argsort(-p)
    n = len(dist.order_N)
    assert dist.order_N.tolist() == order[:n].tolist()
    np.testing.assert_allclose(dist.mass_N, [p[order[r:]].sum() for r in range(n + 1)], atol=1e-12)
    assert dist.kappa == pytest.approx(kappa(p, m))


def test_a_sample_weighs_what_it_stands_for_and_is_the_same_every_time():
    p = np.random.default_rng(0).dirichlet(np.ones(200))
    dist = Distribution(p, 4)
    tokens, weight = dist.sample_beyond(50, 30)
    assert weight.sum() == pytest.approx(dist.mass_N[50])
    assert not set(tokens) & set(dist.order_N[:50])
    assert tokens.tolist() == Distribution(p, 4).sample_beyond(50, 30)[0].tolist()
    assert len(dist.sample_beyond(200, 30)[0]) == 0


def test_a_little_rounding_is_normalised_and_more_is_refused():
    assert probabilities([0.5, 0.5005], 2).sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(ValueError, match=r"sums to 1\.1"):
        probabilities([0.5, 0.6], 2)
    with pytest.raises(ValueError, match="log-probabilities"):
        probabilities([-1.0, 2.0], 2)
    with pytest.raises(ValueError, match="NaN"):
        probabilities([np.nan, 1.0], 2)
    with pytest.raises(ValueError, match="sums to inf"):
        probabilities([np.inf, 1.0], 2)
    with pytest.raises(ValueError, match="W has 3 rows"):
        probabilities([0.5, 0.5], 3)


def test_the_callers_numbers_stay_as_they_are():
    p = np.array([0.5, 0.5005])
    probabilities(p, 2)
    assert p.tolist() == [0.5, 0.5005]
