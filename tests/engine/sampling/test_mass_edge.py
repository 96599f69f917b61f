import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.engine import sampling_passes as module
from unspool.engine.sampling_passes import Scratch

from .conftest import new_scratch


@numba.njit
def edge_of(key, weight, size, top, floor, mass, scratch):
    return module.mass_edge(key, weight, size, top, floor, mass, scratch)


def found(keys, weights, mass, floor=-np.inf):
    scratch = Scratch(*new_scratch(len(keys)))
    scratch.key[:] = -np.inf
    scratch.weight[:] = 0
    scratch.key[: len(keys)], scratch.weight[: len(keys)] = keys, weights
    least = np.float32(max(floor, np.min(keys)))
    return edge_of(scratch.key, scratch.weight, len(keys), float(np.max(keys)), least, mass, scratch)


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


def test_an_unreachable_mass_ends_at_the_last_key():
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
    size=st.sampled_from([1, 2, module.MAX_QUICKSELECT, module.MAX_QUICKSELECT + 1, 1500]),
    levels=st.sampled_from([1, 3, 50, 10**6]),
    share=st.floats(0.001, 1),
    seed=st.integers(0, 2**30),
    around=st.sampled_from([0.0, 5.0, -30.0]),
    apart=st.sampled_from([1 / 7, 2.0**-19, 2.0**-24]),
)
def test_mass_edge_equals_sorting(size, levels, share, seed, around, apart):
    rng = np.random.default_rng(seed)
    keys = (around + rng.integers(levels, size=size) * apart).astype(np.float32)
    weights = rng.integers(1, 100, size=size).astype(np.float32)  # whole numbers: sums are exact
    mass = float(np.ceil(share * weights.sum()))
    assert tuple(found(keys, weights, mass)) == sorted_out(keys, weights, mass)


@pytest.mark.parametrize("size", [100, 3000])
def test_keys_below_the_floor_are_ignored(size):
    keys = np.linspace(0, -1e30, size, dtype=np.float32)
    keys[:50] = np.linspace(0, -1, 50)
    weights = np.full(size, 1e-6, np.float32)
    weights[:50] = 1
    assert found(keys, weights, 25.0, floor=-1.0).key == keys[24]
