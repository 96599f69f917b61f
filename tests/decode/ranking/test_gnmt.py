import math

import pytest
from hypothesis import given, strategies as st

from unspool.decode.ranking import GNMT


def test_by_hand():
    # ((5 + 7) / 6)^1 = 2 and ((5 + 19) / 6)^0.5 = 2
    assert GNMT(1.0)(-6.0, 7) == -3.0
    assert GNMT(0.5)(-6.0, 19) == -3.0


@given(st.floats(-1e4, 0), st.floats(-10, 10))
def test_one_token_pays_nothing(total, alpha):
    assert GNMT(alpha)(total, 1) == total


@given(st.floats(-1e4, -1e-4), st.integers(1, 2000), st.floats(0.01, 10))
def test_it_is_monotone_in_the_length(total, length, alpha):
    assert GNMT(alpha)(total, length + 1) >= GNMT(alpha)(total, length)
    assert GNMT(-alpha)(total, length + 1) <= GNMT(-alpha)(total, length)


@pytest.mark.parametrize("alpha", [math.nan, math.inf, 10.5])
def test_a_power_that_is_no_number_or_too_steep_is_refused(alpha):
    with pytest.raises(ValueError, match=r"GNMT\.alpha"):
        GNMT(alpha)
