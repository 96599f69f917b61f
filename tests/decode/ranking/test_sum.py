from hypothesis import given, strategies as st

from unspool.decode.ranking import Length, Sum


def test_the_sum_is_the_score_whatever_the_length():
    assert Sum()(-3.5, 1) == Sum()(-3.5, 400) == -3.5


@given(st.floats(-1e6, 0), st.integers(1, 5000))
def test_it_is_the_length_penalty_of_power_zero(total, length):
    assert Sum()(total, length) == Length(0.0)(total, length)
