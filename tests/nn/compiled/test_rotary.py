import numba
import numpy as np
import pytest
import torch

from unspool.engine.layers import rotate as compiled_rotate
from unspool.engine.transformer_engine import Tables
from unspool.nn.positions import Rotary, rotate


@numba.njit
def rotated(x, heads, width, turned, cos, sin, position):
    compiled_rotate(x, 0, heads, width, turned, cos, sin, position)
    return x


@pytest.mark.parametrize("turned", [12, 8, 2])
def test_heads_are_turned_as_torch_turns_them_whole_or_in_part(turned):
    rotary = Rotary(12, 100.0, turned_width=turned)
    tables = Tables([rotary], None)
    tables.reach(40)
    x = torch.randn(1, 1, 5, 12)
    want = rotate(x, *rotary.tables(torch.tensor([[37]]), 40))
    found = rotated(x.numpy().reshape(-1).copy(), 5, 12, turned, tables.cos, tables.sin, 37)
    np.testing.assert_allclose(found.reshape(5, 12), want[0, 0].numpy(), rtol=1e-5, atol=1e-6)
