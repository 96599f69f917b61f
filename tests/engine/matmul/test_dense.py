import numba
import numpy as np
import pytest

from unspool.engine.dense_matmul import Outputs, product


@numba.njit
def multiplied(w, x, first, last):
    outputs, inputs = w.shape
    y = np.full((x.shape[0], outputs), np.float32(-77))
    product(w.reshape(-1), inputs, x.reshape(-1), x.shape[0], Outputs(y.reshape(-1), outputs, 0), first, last)
    return y


@pytest.mark.parametrize("inputs", [1, 7, 8, 24, 29, 576])
@pytest.mark.parametrize("outputs", [1, 5, 33, 70])
def test_products_are_right_and_bit_identical_in_any_batch(inputs, outputs):
    rng = np.random.default_rng(inputs + outputs)
    w = rng.standard_normal((outputs, inputs)).astype(np.float32)
    x = rng.standard_normal((21, inputs)).astype(np.float32)
    alone = np.concatenate([multiplied(w, x[n : n + 1], 0, outputs) for n in range(len(x))])
    np.testing.assert_allclose(alone, x.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-5)
    for rows in range(2, 22):
        for start in {0, 21 - rows}:
            together = multiplied(w, x[start : start + rows], 0, outputs)
            np.testing.assert_array_equal(together, alone[start : start + rows])


def test_only_the_requested_outputs_are_written():
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((70, 16)).astype(np.float32), rng.standard_normal((11, 16)).astype(np.float32)
    y, whole = multiplied(w, x, 3, 40), multiplied(w, x, 0, 70)
    np.testing.assert_array_equal(y[:, 3:40], whole[:, 3:40])
    assert (np.delete(y, np.s_[3:40], axis=1) == -77).all()
