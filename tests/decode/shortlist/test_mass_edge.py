import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.decode.shortlist.mass_edge import INTERVALS, Edge, intervals, mass_edge


def found(keys, weights, mass):
    return mass_edge(keys, weights, intervals(keys, float(keys.max()), float(keys.min()) - 1), mass)


def test_by_hand():
    keys, weights = np.float32([1, 4, 2, 4, 3]), np.float32([8, 1, 4, 1, 2])
    assert found(keys, weights, 1.5) == Edge(4, 0, 2, 2)
    assert found(keys, weights, 4.0) == Edge(3, 2, 2, 1)
    assert found(keys, weights, 4.1) == Edge(2, 4, 4, 1)
    assert found(keys, weights, 99.0) == Edge(1, 8, 8, 1)


@pytest.mark.parametrize(("mass", "needed"), [(0.1, 1), (3.0, 1), (5.0, 2), (5.1, 3), (9.0, 4)])
def test_how_many_of_the_tied_are_needed(mass, needed):
    assert Edge(0.0, 1.0, 8.0, 4).needed(mass) == needed
    assert Edge(0.0, 1.0, 0.0, 4).needed(mass) == 4


@settings(deadline=None, max_examples=100)
@given(
    size=st.sampled_from([1, 2, 300, 1500]),
    levels=st.sampled_from([1, 3, 50, 10**6]),
    share=st.floats(0.001, 1),
    seed=st.integers(0, 2**30),
)
def test_it_is_what_sorting_finds(size, levels, share, seed):
    dice = np.random.default_rng(seed)
    keys = dice.integers(levels, size=size) / 7
    weights = dice.integers(1, 100, size=size).astype(np.float64)
    mass = float(np.ceil(share * weights.sum()))
    ranked = np.argsort(-keys, kind="stable")
    edge = keys[ranked[np.searchsorted(weights[ranked].cumsum(), mass)]]
    expected = Edge(edge, weights[keys > edge].sum(), weights[keys == edge].sum(), (keys == edge).sum())
    assert found(keys, weights, mass) == expected


def test_intervals_are_in_order_and_all_below_the_floor_in_the_last():
    keys = np.linspace(0, -100, 5000)
    found = intervals(keys, 0.0, -10.0)
    assert (np.diff(found) >= 0).all()
    assert (found == INTERVALS).sum() == (keys <= -10).sum()
