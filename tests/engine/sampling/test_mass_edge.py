import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.engine import sampling_passes as module
from unspool.engine.sampling_passes import Scratch

from .conftest import made


@numba.njit
def edge_of(key, weight, size, top, floor, mass, room):
    return module.mass_edge(key, weight, size, top, floor, mass, room)


def found(keys, weights, mass, floor=-np.inf):
    room = Scratch(*made(len(keys)))
    room.key[:] = -np.inf
    room.weight[:] = 0
    room.key[: len(keys)], room.weight[: len(keys)] = keys, weights
    least = np.float32(max(floor, np.min(keys)))
    return edge_of(room.key, room.weight, len(keys), float(np.max(keys)), least, mass, room)


def sorted_out(keys, weights, mass):
    """The definition, by sorting."""
    ranked = np.argsort(-keys, kind="stable")
    upto = weights[ranked].cumsum()
    edge = keys[ranked[min(np.searchsorted(upto, mass), len(keys) - 1)]]
    return edge, weights[keys > edge].sum(), weights[keys == edge].sum(), (keys == edge).sum()


def test_by_hand():
    keys, weights = np.float32([1, 4, 2, 4, 3]), np.float32([8, 1, 4, 1, 2])
    assert tuple(found(keys, weights, 1.5)) == (4, 0, 2, 2)
    assert tuple(found(keys, weights, 4.0)) == (3, 2, 2, 1)
    assert tuple(found(keys, weights, 4.1)) == (2, 4, 4, 1)
    assert tuple(found(keys, weights, 16.0)) == (1, 8, 8, 1)


def test_a_mass_out_of_reach_is_reached_by_what_comes_last():
    for size in (5, 1000):
        keys, weights = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
        assert found(keys, weights, size + 1.0).key == 0


@pytest.mark.parametrize("key", [5.0, -30.0, 0.0])
@pytest.mark.parametrize("mass", [1.0, 600.0, 2000.0])
def test_keys_that_are_all_the_same(key, mass):
    """Half of an interval between them is less than single precision can tell."""
    keys, weights = np.full(1000, key, np.float32), np.ones(1000, np.float32)
    assert tuple(found(keys, weights, mass)) == (key, 0, 1000, 1000)


@settings(deadline=None, max_examples=100)
@given(
    size=st.sampled_from([1, 2, module.SHORT, module.SHORT + 1, 1500]),
    levels=st.sampled_from([1, 3, 50, 10**6]),
    share=st.floats(0.001, 1),
    seed=st.integers(0, 2**30),
    around=st.sampled_from([0.0, 5.0, -30.0]),
    apart=st.sampled_from([1 / 7, 2.0**-19, 2.0**-24]),
)
def test_it_is_what_sorting_finds(size, levels, share, seed, around, apart):
    dice = np.random.default_rng(seed)
    keys = (around + dice.integers(levels, size=size) * apart).astype(np.float32)
    weights = dice.integers(1, 100, size=size).astype(np.float32)  # whole numbers: sums are exact
    mass = float(np.ceil(share * weights.sum()))
    assert tuple(found(keys, weights, mass)) == sorted_out(keys, weights, mass)


@pytest.mark.parametrize("size", [100, 3000])
def test_what_is_below_the_floor_is_not_looked_at(size):
    keys = np.linspace(0, -1e30, size, dtype=np.float32)
    keys[:50] = np.linspace(0, -1, 50)
    weights = np.full(size, 1e-6, np.float32)
    weights[:50] = 1
    assert found(keys, weights, 25.0, floor=-1.0).key == keys[24]
