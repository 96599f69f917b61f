import numba
import numpy as np
import pytest
import torch

from unspool.engine import weight_table
from unspool.engine.layers import activation, gated_activation, norm, rotate as compiled_rotate, soft_cap
from unspool.engine.transformer_engine import PositionTables
from unspool.engine.weight_table import ACTIVATIONS as NUMBERS
from unspool.nn.norms import NORMS
from unspool.nn.positions import Rotary, rotate
from unspool.nn.transformer import ACTIVATIONS


@numba.njit
def made(kind, x, at, size):
    y = np.zeros_like(x)
    activation(kind, x, at, y, at + 1, size)
    activation(kind, x, at, x, at, size)  # in place, too
    return x, y


@numba.njit
def let_through(kind, x, size):
    y = np.empty(size, np.float32)
    gated_activation(kind, x, 0, size, y, 0, size)
    return y


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_activations_equal_torch_and_leave_neighbours_unchanged(name):
    x = torch.linspace(-6, 6, 45)
    want = ACTIVATIONS[name](x[3:24].double())  # in single precision torch's GELU cancels
    found, beside = made(NUMBERS[name], x.numpy().copy(), 3, 21)
    np.testing.assert_array_equal(beside[4:25], found[3:24])
    assert not np.delete(beside, np.s_[4:25]).any()
    np.testing.assert_allclose(found[3:24], want.numpy(), rtol=1e-5, atol=2e-7)
    np.testing.assert_array_equal(np.delete(found, np.s_[3:24]), np.delete(x.numpy(), np.s_[3:24]))


@pytest.mark.parametrize("name", ["swiglu", "geglu"])
@pytest.mark.parametrize("size", [3, 8, 21])
def test_gated_activations_equal_torch(size, name):
    x = torch.randn(2 * size) * 3
    want = ACTIVATIONS[name](x.double()).numpy()  # in single precision torch's GELU cancels
    np.testing.assert_allclose(let_through(NUMBERS[name], x.numpy(), size), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh"])
def test_activations_keep_nan(name):
    assert np.isnan(made(NUMBERS[name], np.full(9, np.nan, np.float32), 0, 8)[0]).all()


@numba.njit
def normed(kind, eps, part, x, width):
    y = np.empty_like(x)
    for n in range(x.size // width):
        norm(kind, eps, part, x, n * width, width, y, n * width)
        norm(kind, eps, part, x, n * width, width, x, n * width)  # in place, too
    return x, y


@pytest.mark.parametrize("width", [3, 8, 21, 64])
@pytest.mark.parametrize("name", ["rms", "layer"])
def test_norms_equal_torch(name, width):
    torch.manual_seed(width)
    module = NORMS[name](width, 1e-5)
    for weight in module.parameters():
        torch.nn.init.normal_(weight)
    x = torch.randn(4, width) * 3 + 1
    part = np.zeros(weight_table.FIELDS, np.int64)
    part[weight_table.WEIGHT] = module.weight.data_ptr()
    part[weight_table.BIAS] = module.bias.data_ptr() if name == "layer" else 0
    in_place, found = normed(weight_table.NORMS[name], 1e-5, part, x.numpy().flatten(), width)
    np.testing.assert_array_equal(in_place, found)
    want = module(x).detach().numpy()
    np.testing.assert_allclose(found.reshape(4, width), want, rtol=1e-5, atol=1e-6)


@numba.njit
def rotated(x, heads, width, turned, cos, sin, position):
    compiled_rotate(x, 0, heads, width, turned, cos, sin, position)
    return x


@pytest.mark.parametrize("turned", [12, 8, 2])
def test_rotary_equals_torch_for_whole_or_partial_heads(turned):
    rotary = Rotary(12, 100.0, turned_width=turned)
    tables = PositionTables([rotary], None).up_to(40)
    x = torch.randn(1, 1, 5, 12)
    want = rotate(x, *rotary.tables(torch.tensor([[37]]), 40))
    found = rotated(x.numpy().reshape(-1).copy(), 5, 12, turned, tables.cos, tables.sin, 37)
    np.testing.assert_allclose(found.reshape(5, 12), want[0, 0].numpy(), rtol=1e-5, atol=1e-6)


@numba.njit
def bent(z, at, size, scale, cap):
    soft_cap(z, at, size, scale, cap)
    return z


def test_by_hand():
    """c = 2, s = ½: 2 tanh(z/4)."""
    found = bent(np.array([9, 0, 4, -4, 400, 9], np.float32), 1, 4, np.float32(0.5), 2.0)
    np.testing.assert_allclose(found, [9, 0, 1.523188, -1.523188, 2, 9], atol=1e-6)


@pytest.mark.parametrize("size", [1, 16, 37])
def test_soft_cap_bounds_scores_keeps_their_order_and_small_ones(size):
    z = np.sort(np.random.default_rng(size).normal(size=size).astype(np.float32) * 20)
    found = bent(z.copy(), 0, size, np.float32(1), 30.0)
    np.testing.assert_allclose(found, 30 * np.tanh(z.astype(np.float64) / 30), atol=1e-5)
    assert (np.diff(found) >= 0).all()
    assert (np.abs(found) <= 30).all()
    small = z / 1000
    np.testing.assert_allclose(bent(small.copy(), 0, size, np.float32(1), 30.0), small, atol=1e-5)
