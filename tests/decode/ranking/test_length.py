import math

import pytest
from hypothesis import given, strategies as st

from unspool.decode.ranking import Length


def test_by_hand():
    assert Length(1.0)(-6.0, 4) == -1.5
    assert Length(0.5)(-6.0, 4) == -3.0
    assert Length(-1.0)(-6.0, 4) == -24.0
    assert repr(Length(0.5)) == "Length(alpha=0.5)"


@given(st.floats(-1e4, -1e-4), st.integers(1, 2000), st.floats(0.01, 10))
def test_a_positive_power_favours_the_longer_a_negative_one_the_shorter(total, length, alpha):
    assert Length(alpha)(total, length + 1) >= Length(alpha)(total, length)
    assert Length(-alpha)(total, length + 1) <= Length(-alpha)(total, length)


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -math.inf, 11.0, -1000])
def test_a_power_that_is_no_number_or_too_steep_is_refused(alpha):
    with pytest.raises(ValueError, match=r"Length\.alpha"):
        Length(alpha)


def test_a_power_that_is_not_a_number_at_all_is_refused():
    with pytest.raises(TypeError, match="must be a number"):
        Length("1")


def test_long_texts_do_not_overflow():
    assert math.isfinite(Length(10)(-1e6, 1_000_000))
    assert math.isfinite(Length(-10)(-1e6, 1_000_000))
