from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.basis.kappa import KappaRule, kappa


def test_hand_computed_scales():
    # min(1, κ/2) + min(1, κ/4) + 2·min(1, κ/8) = 2: the first saturates, κ·(1/2) = 1.
    assert kappa([0.5, 0.25, 0.125, 0.125], 2) == pytest.approx(2)
    assert kappa([0.25, 0.25, 0.25, 0.25], 3) == pytest.approx(3)
    assert kappa([0.7, 0.2, 0.1], 2) == pytest.approx(1 / 0.3)
    assert kappa([0.5, 0.5, 0.0], 3) == inf


@given(st.integers(0, 1000), st.integers(1, 12), st.floats(0.1, 3))
def test_kappa_solves_its_equation(seed, m, spread):
    p = np.random.default_rng(seed).dirichlet(np.full(12, spread)) + 1e-6
    p /= p.sum()
    assert np.minimum(1, kappa(p, m) * p).sum() == pytest.approx(m)


def test_a_rule_is_linear_in_logarithms_and_beyond_its_knots():
    rule = KappaRule(2, (0.25, 1.0), (0.1, 0.4))  # g = 0.4·c
    assert rule.threshold(0.2) == pytest.approx(0.1)
    assert rule.threshold(1 / 3) == pytest.approx(0.2)
    assert rule.threshold(0.75) == pytest.approx(1.2)
    assert KappaRule(2, (0.25,), (0.1,)).threshold(0.9) == 0.1


def test_a_rule_accepts_from_its_threshold_on():
    rule, p = KappaRule(2, (1.0,), (0.5,)), np.array([0.5, 0.25, 0.2, 0.05, 0.0])  # κ = 2: from 0.25 on
    assert rule.mask(p, 0.5).tolist() == [True, True, False, False, False]
    assert [rule.accepts(p, i, 0.5) for i in range(5)] == rule.mask(p, 0.5).tolist()
    assert rule.mask(np.stack([p, p[::-1]]), 0.5)[1].tolist() == [False, False, False, True, True]


def test_rules_that_are_none_are_refused():
    with pytest.raises(ValueError, match="one each"):
        KappaRule(2, (1.0, 2.0), (0.5,))
    with pytest.raises(ValueError, match="must rise"):
        KappaRule(2, (2.0, 1.0), (0.5, 0.6))
    with pytest.raises(ValueError, match="at least 1"):
        kappa([1.0], 0)
