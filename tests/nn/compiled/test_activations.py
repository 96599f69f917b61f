import numba
import numpy as np
import pytest
import torch

from unspool.engine.layers import gated, plain
from unspool.engine.weight_table import ACTIVATIONS as NUMBERS
from unspool.nn.transformer import ACTIVATIONS


@numba.njit
def made(kind, x, at, size):
    y = np.zeros_like(x)
    plain(kind, x, at, y, at + 1, size)
    plain(kind, x, at, x, at, size)  # in place, too
    return x, y


@numba.njit
def let_through(kind, x, size):
    y = np.empty(size, np.float32)
    gated(kind, x, 0, size, y, 0, size)
    return y


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_a_plain_activation_is_torchs_and_leaves_its_neighbours_alone(name):
    x = torch.linspace(-6, 6, 45)
    want = ACTIVATIONS[name](x[3:24].double())  # in single precision torch's GELU cancels
    found, beside = made(NUMBERS[name], x.numpy().copy(), 3, 21)
    np.testing.assert_array_equal(beside[4:25], found[3:24])
    assert not np.delete(beside, np.s_[4:25]).any()
    np.testing.assert_allclose(found[3:24], want.numpy(), rtol=1e-5, atol=2e-7)
    np.testing.assert_array_equal(np.delete(found, np.s_[3:24]), np.delete(x.numpy(), np.s_[3:24]))


@pytest.mark.parametrize("name", ["swiglu", "geglu"])
@pytest.mark.parametrize("size", [3, 8, 21])
def test_a_gate_lets_through_what_torchs_does(size, name):
    x = torch.randn(2 * size) * 3
    want = ACTIVATIONS[name](x.double()).numpy()  # in single precision torch's GELU cancels
    np.testing.assert_allclose(let_through(NUMBERS[name], x.numpy(), size), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh"])
def test_what_is_no_number_is_passed_on(name):
    assert np.isnan(made(NUMBERS[name], np.full(9, np.nan, np.float32), 0, 8)[0]).all()
