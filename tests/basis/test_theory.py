from math import exp, expm1, log

import pytest
from hypothesis import given, strategies as st

from unspool.basis.theory import check_tau, slope_from_tau, tau_from_delta


def test_the_papers_numbers():
    assert tau_from_delta(log(1.9)) == pytest.approx(0.4737, abs=1e-4)
    assert slope_from_tau(1 - 1 / 1.9) == pytest.approx(0.9)


@given(st.floats(1e-9, 30))
def test_tau_and_slope_agree_for_every_delta(delta):
    assert tau_from_delta(delta) == pytest.approx(1 - exp(-delta), abs=1e-15)
    if delta < 20:
        assert slope_from_tau(tau_from_delta(delta)) == pytest.approx(expm1(delta), rel=1e-6)


@pytest.mark.parametrize("tau", [0, 1, -0.1, 1.5, float("nan")])
def test_a_tau_outside_is_refused(tau):
    with pytest.raises(ValueError, match="0 < tau < 1"):
        check_tau(tau)


@pytest.mark.parametrize("delta", [0, -1, float("inf"), float("nan")])
def test_a_delta_outside_is_refused(delta):
    with pytest.raises(ValueError, match="a finite number, 0 < delta"):
        tau_from_delta(delta)
