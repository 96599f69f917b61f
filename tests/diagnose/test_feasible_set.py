from math import exp

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.basis import BasisTest
from unspool.diagnose.feasible_set import feasible


def test_the_example_of_the_paper_by_hand():
    found = feasible()
    assert found.p == pytest.approx([0.331, 0.498, 0.171], abs=1e-3)
    assert found.tau == pytest.approx(1 - 1 / 1.9)
    # Along (0.42, −0.26, −0.16): token 1 reaches zero; the other way it grows 1.9-fold first.
    t = found.p[0] / 0.42
    assert found.ends[0] == pytest.approx([0, found.p[1] + 0.26 * t, found.p[2] + 0.16 * t])
    assert found.ends[1][0] == pytest.approx(1.9 * found.p[0])
    assert found.may_be_zero == (True, False, False)
    # Without the bound on the error token 3 could be impossible as well.
    assert found.line[1][2] == 0


weights = st.tuples(*[st.integers(-20, 20).map(lambda x: x / 10)] * 3).filter(lambda w: len(set(w)) == 3)


@given(weights, st.floats(-3, 3), st.floats(0.05, 2))
def test_the_segment_is_feasible_and_agrees_with_the_exact_test(w, hidden, delta):
    found = feasible(w, hidden, delta)
    for end in found.ends:
        assert end.sum() == pytest.approx(1)
        assert end.min() >= 0
        assert (end <= exp(delta) * found.p + 1e-9).all()
        assert end @ np.array(w) == pytest.approx(found.p @ np.array(w), abs=1e-9)
    test = BasisTest(np.array(w)[:, None])
    for i in range(3):
        # The end of the segment can be within rounding of a side; then either verdict is right.
        if found.may_be_zero[i] or min(end[i] for end in found.ends) > 1e-6:
            theta = test.solve_linear_program(found.p, i, found.tau)
            assert theta.is_borderline or bool(theta) != found.may_be_zero[i]


def test_equal_weights_raise():
    with pytest.raises(ValueError, match="not all equal"):
        feasible((1.0, 1.0, 1.0), 1.0, 0.5)
