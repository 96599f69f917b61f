import numpy as np
import pytest
from tests.nn.compiled.products.test_int8_tiles import packed, product

from unspool.engine.int8_matmul import GROUP, SIDE, ByDigits
from unspool.engine.simd_bytes import BYTE_PRODUCTS

pytestmark = pytest.mark.skipif(not BYTE_PRODUCTS, reason="this processor multiplies no bytes")


def test_the_largest_sums_that_there_can_be_fit():
    largest = np.float32(2 - 2**-21)  # all of its digits' products are as large as they can be
    for sign in (1, -1):
        q, scales = np.full((SIDE, GROUP), 127 * sign), np.ones((SIDE, 1))
        y = product(ByDigits(), 1, packed(q, scales), np.full((1, GROUP), largest), 1)
        np.testing.assert_allclose(y, 64.0 * 127 * sign * largest, rtol=2e-7)


def test_sums_of_a_group_do_not_depend_on_its_order():
    dice = np.random.default_rng(0)
    q, x = dice.integers(-127, 128, (SIDE, GROUP)), dice.standard_normal((1, GROUP)).astype(np.float32)
    order, scales = dice.permutation(GROUP), np.ones((SIDE, 1))
    y = product(ByDigits(), 1, packed(q, scales), x, 1)
    np.testing.assert_array_equal(product(ByDigits(), 1, packed(q[:, order], scales), x[:, order], 1), y)


def test_nan_spoils_its_own_row_and_no_other():
    x = np.ones((2, GROUP), np.float32)
    x[1, 7] = np.nan
    y = product(ByDigits(), 2, packed(np.ones((SIDE, GROUP)), np.ones((SIDE, 1))), x, 1)
    assert (y[0] == GROUP).all()
    assert np.isnan(y[1]).all()
