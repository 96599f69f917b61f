import numba
import numpy as np
import pytest
import torch

from unspool.engine import weight_table
from unspool.engine.layers import norm
from unspool.nn.norms import NORMS


@numba.njit
def normed(kind, eps, part, x, width):
    y = np.empty_like(x)
    for n in range(x.size // width):
        norm(kind, eps, part, x, n * width, width, y, n * width)
        norm(kind, eps, part, x, n * width, width, x, n * width)  # in place, too
    return x, y


@pytest.mark.parametrize("width", [3, 8, 21, 64])
@pytest.mark.parametrize("name", ["rms", "layer"])
def test_it_is_what_torch_makes_of_a_row(name, width):
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
