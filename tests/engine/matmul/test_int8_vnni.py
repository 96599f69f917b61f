import numpy as np
import pytest
from tests.engine.matmul.test_int8_tiles import packed, product

from unspool.engine.interleaved_formats import GROUP
from unspool.engine.interleaved_matmul import VnniProduct
from unspool.engine.simd_bytes import HAS_VNNI
from unspool.engine.weight_formats import SIDE

pytestmark = pytest.mark.skipif(not HAS_VNNI, reason="this processor multiplies no bytes")


def test_the_largest_possible_sums_do_not_overflow():
    largest = np.float32(1.7)  # every number has the largest digits
    for sign in (1, -1):
        q, scales = np.full((SIDE, GROUP), 127 * sign), np.ones((SIDE, 1))
        y = product(VnniProduct(), 1, packed(q, scales), np.full((1, GROUP), largest), 1)
        np.testing.assert_allclose(y, 64.0 * 127 * sign * largest, rtol=1e-6)


def test_sums_of_a_group_do_not_depend_on_its_order():
    rng = np.random.default_rng(0)
    q, x = (
        rng.integers(-127, 128, (SIDE, GROUP)),
        rng.standard_normal((1, GROUP)).astype(np.float32),
    )
    order, scales = rng.permutation(GROUP), np.ones((SIDE, 1))
    y = product(VnniProduct(), 1, packed(q, scales), x, 1)
    np.testing.assert_array_equal(product(VnniProduct(), 1, packed(q[:, order], scales), x[:, order], 1), y)


def test_nan_affects_only_its_own_row():
    x = np.ones((2, GROUP), np.float32)
    x[1, 7] = np.nan
    y = product(VnniProduct(), 2, packed(np.ones((SIDE, GROUP)), np.ones((SIDE, 1))), x, 1)
    np.testing.assert_allclose(y[0], GROUP, rtol=1e-6)
    assert np.isnan(y[1]).all()
