from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages.zipf_markov import cumulative_sums, zipf


def test_by_hand():
    # 1 + 1/2 + 1/3 = 11/6
    assert zipf(3).tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    # 1 + 1/4 = 5/4
    assert zipf(2, 2.0).tolist() == pytest.approx([4 / 5, 1 / 5])
    assert zipf(4, 0.0).tolist() == [0.25] * 4


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 300), st.floats(0, 3))
def test_shares_fall_and_add_up_to_one(n, exponent):
    shares = zipf(n, exponent)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares[1:] <= shares[:-1]).all()
    sums = cumulative_sums(shares)
    assert sums[-1] == 1.0
    assert sums[:-1].tolist() == pytest.approx(shares.cumsum()[:-1].tolist())
