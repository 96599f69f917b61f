import numba
import numpy as np
import pytest
import torch

from unspool.engine.log_softmax import log_softmax


@numba.njit
def normalised(z, at, size):
    return log_softmax(z, at, size)


@pytest.mark.parametrize("size", [1, 5, 8, 100, 50_001])
def test_it_equals_torch_and_returns_the_log_normaliser(size):
    z = torch.randn(2 + size) * 10
    found = z.numpy().copy()
    taken = normalised(found, 2, size)
    np.testing.assert_allclose(found[2:], torch.log_softmax(z[2:], -1).numpy(), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(taken, torch.logsumexp(z[2:], -1).item(), rtol=1e-6)
    np.testing.assert_array_equal(found[:2], z[:2].numpy())


@pytest.mark.parametrize("size", [9, 17, 33, 40])
def test_all_tokens_behind_the_last_whole_vector_may_be_cut(size):
    some = np.zeros(size, np.float32)
    some[8:] = -np.inf
    normalised(some, 0, size)
    np.testing.assert_allclose(np.exp(some), [1 / 8] * 8 + [0] * (size - 8), rtol=1e-6)


def test_cut_tokens_stay_cut_and_nan_stays_nan():
    banned = np.array([0, -np.inf, 0, 0, 0, 0, 0, 0, -np.inf], np.float32)
    normalised(banned, 0, 9)
    np.testing.assert_allclose(np.exp(banned), [1 / 7, 0, *[1 / 7] * 6, 0], rtol=1e-6)
    broken = np.zeros(9, np.float32)
    broken[3] = np.nan
    normalised(broken, 0, 9)
    assert np.isnan(broken).all()
