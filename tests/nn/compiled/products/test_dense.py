import numba
import numpy as np
import pytest

from unspool.nn.compiled.products.dense import GROUP, Dense, Outputs, product


@numba.njit
def multiplied(w, x, scales, group, first, last):
    outputs, inputs = w.shape
    y = np.full((x.shape[0], outputs), np.float32(-77))
    m = Dense(
        w.reshape(-1),
        inputs,
        scales.reshape(-1),
        np.int64(0 if scales.size == 1 else scales.shape[1]),
        np.int64(group),
    )
    product(m, x.reshape(-1), x.shape[0], Outputs(y.reshape(-1), outputs, 0), first, last)
    return y


PLAIN = np.ones((1, 1), np.float32)


@pytest.mark.parametrize("inputs", [1, 7, 8, 24, 29, 576])
@pytest.mark.parametrize("outputs", [1, 5, 33, 70])
def test_it_is_the_product_and_every_row_is_the_same_to_the_bit_in_any_company(inputs, outputs):
    rng = np.random.default_rng(inputs + outputs)
    w = rng.standard_normal((outputs, inputs)).astype(np.float32)
    x = rng.standard_normal((21, inputs)).astype(np.float32)
    alone = np.concatenate([multiplied(w, x[n : n + 1], PLAIN, GROUP, 0, outputs) for n in range(len(x))])
    np.testing.assert_allclose(alone, x.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-5)
    for rows in range(2, 22):
        for start in {0, 21 - rows}:
            together = multiplied(w, x[start : start + rows], PLAIN, GROUP, 0, outputs)
            np.testing.assert_array_equal(together, alone[start : start + rows])


@pytest.mark.parametrize("inputs", [64, 100, 131])
def test_every_group_of_inputs_may_have_a_scale(inputs):
    rng = np.random.default_rng(inputs)
    groups = -(-inputs // 64)
    w = rng.integers(-5, 6, (9, inputs)).astype(np.float32)
    x = rng.standard_normal((13, inputs)).astype(np.float32)
    scales = rng.standard_normal((9, groups)).astype(np.float32)
    whole = w * np.repeat(scales, 64, axis=1)[:, :inputs]
    alone = np.concatenate([multiplied(w, x[n : n + 1], scales, 64, 0, 9) for n in range(len(x))])
    np.testing.assert_allclose(alone, x.astype(np.float64) @ whole.T, rtol=1e-4, atol=1e-4)
    for rows in (2, 3, 7, 8, 13):
        np.testing.assert_array_equal(multiplied(w, x[:rows], scales, 64, 0, 9), alone[:rows])


def test_only_the_outputs_that_are_asked_for_are_written():
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((70, 16)).astype(np.float32), rng.standard_normal((11, 16)).astype(np.float32)
    y, whole = multiplied(w, x, PLAIN, GROUP, 3, 40), multiplied(w, x, PLAIN, GROUP, 0, 70)
    np.testing.assert_array_equal(y[:, 3:40], whole[:, 3:40])
    assert (np.delete(y, np.s_[3:40], axis=1) == -77).all()
