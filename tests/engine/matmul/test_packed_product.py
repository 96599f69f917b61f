import numpy as np
import pytest
import torch
from tests.engine.matmul.conftest import PACKED, stored

from unspool.engine.memory import MAX_STACK_FLOATS
from unspool.engine.packed_matmul import tile_rows
from unspool.engine.weight_formats import INT8, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0


@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("columns", [256, 768])
def test_packed_products_equal_dequantised_products_in_any_batch(kind, columns, multiplied):
    weight = stored(kind, 37, columns)
    x = np.random.default_rng(1).standard_normal((19, columns)).astype(np.float32)
    alone = np.concatenate([multiplied([weight], x[n : n + 1]) for n in range(len(x))])
    exact = x.astype(np.float64) @ weight.restore().double().numpy().T
    length = np.linalg.norm(x, axis=1)[:, None] * weight.restore().norm(dim=1).numpy()
    assert np.abs(alone - exact).max() < 1e-5 * length.max()
    for rows in range(2, 20):
        np.testing.assert_array_equal(multiplied([weight], x[-rows:]), alone[-rows:])


@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_a_row_is_unpacked(kind, gathered):
    weight = stored(kind, 5, 512)
    found = gathered(weight, 3).reshape(3, -1)
    np.testing.assert_allclose(found[1], weight.restore()[3].numpy(), rtol=1e-6, atol=1e-6)
    assert not found[0].any()
    assert not found[2].any()


@pytest.mark.parametrize("first", [0, 5, 20])
def test_matrices_of_several_formats_are_stacked(first, multiplied):
    pieces = [stored(Q4_K, 11, 256), stored(Q8_0, 6, 256, 1), stored(Q6_K, 9, 256, 2)]
    x = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    bias = torch.linspace(-1, 1, 26)
    whole = torch.cat([piece.restore() for piece in pieces])
    y = multiplied(pieces, x, bias, first, 24)
    want = (torch.from_numpy(x) @ whole.T + bias).numpy()
    length = np.linalg.norm(x, axis=1).max() * whole.norm(dim=1).max()
    assert np.abs(y - want)[:, first:24].max() < 1e-5 * length
    assert (np.delete(y, np.s_[first:24], axis=1) == -77).all()


@pytest.mark.parametrize("columns", [1, 63, 70, 100, 129])
def test_int8_takes_rows_of_any_length(columns, multiplied, gathered):
    weight = stored(INT8, 7, columns)
    x = np.random.default_rng(2).standard_normal((11, columns)).astype(np.float32)
    alone = np.concatenate([multiplied([weight], x[n : n + 1]) for n in range(len(x))])
    length = np.linalg.norm(x, axis=1)[:, None] * weight.restore().norm(dim=1).numpy()
    assert np.abs(alone - x @ weight.restore().numpy().T).max() < 1e-5 * length.max()
    np.testing.assert_array_equal(multiplied([weight], x), alone)
    np.testing.assert_array_equal(gathered(weight, 2)[columns : 2 * columns], weight.restore()[2].numpy())


@pytest.mark.parametrize("kind", [Q8_0, Q4_0, Q4_1], ids=lambda kind: kind.name)
@pytest.mark.parametrize("columns", [32, 96])
def test_half_a_group_is_filled_up(kind, columns, multiplied, gathered):
    weight = stored(kind, 33, columns)
    x = np.random.default_rng(2).standard_normal((5, columns)).astype(np.float32)
    want, length = (
        x @ weight.restore().numpy().T,
        np.linalg.norm(x, axis=1).max() * weight.restore().norm(dim=1).max(),
    )
    assert np.abs(multiplied([weight], x) - want).max() < 1e-5 * length
    np.testing.assert_allclose(gathered(weight, 32)[columns : 2 * columns], weight.restore()[32], rtol=1e-6)


def test_a_tile_fits_into_its_memory():
    for inputs in (1, 64, 576, 4096, 16385, 30000, 65536):
        assert 1 <= tile_rows.py_func(inputs) <= 64
        assert tile_rows.py_func(inputs) * inputs <= MAX_STACK_FLOATS
