import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.basis.kappa_rule import KappaRule, kappa


def accepted(rule, p, tau):
    step = rule.step(p)
    return [bool(step.accepts(i, tau=tau)) for i in range(len(p))]


def test_kappa_by_hand():
    # m = 2: token 0 saturates, κ·(0.3 + 0.2) = 1
    assert kappa([0.5, 0.3, 0.2], 2) == pytest.approx(2)
    # nothing saturates: κ·1 = 1
    assert kappa([0.5, 0.3, 0.2], 1) == pytest.approx(1)
    # all three must: κ is at least 1/min p
    assert kappa([0.5, 0.3, 0.2], 3) == pytest.approx(5)
    assert kappa([0.5, 0.3, 0.2], 4) == np.inf
    assert kappa([1.0, 0.0, 0.0], 2) == np.inf


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=60), st.integers(1, 60))
def test_it_solves_its_equation(values, m):
    p = np.array(values) / sum(values)
    k = kappa(p, m)
    assert np.minimum(1, k * p).sum() == pytest.approx(min(m, len(p)))


def test_the_mass_beside_a_peak_is_not_rounded_off():
    # m = 4: the peak saturates, κ·599·e⁻⁴⁴ = 3
    p = np.exp(np.append(0.0, np.full(599, -44.0)))
    assert kappa(p / p.sum(), 4) == pytest.approx(3 / 599 * np.exp(44.0))
    assert sum(accepted(KappaRule(4), p / p.sum(), 0.5)) == 1


def test_the_order_of_tokens_does_not_matter():
    p = np.random.default_rng(0).dirichlet(np.full(200, 0.1))
    assert kappa(p, 20) == pytest.approx(kappa(p[::-1], 20))


def test_m_is_checked():
    with pytest.raises(ValueError, match="at least 1"):
        kappa([1.0], 0)


def test_the_rule_keeps_what_is_above_its_threshold():
    rule = KappaRule(2)  # g(1) = 0.8·2^0.45 = 1.093
    assert accepted(rule, [0.5, 0.3, 0.2], 0.5) == [False, False, False]  # κ = 2: the rule is p ≥ 0.546
    assert accepted(rule, [0.55, 0.3, 0.15], 0.5) == [True, False, False]  # κ = 1/0.45: p ≥ 0.492


def test_no_token_of_probability_zero_is_kept():
    assert accepted(KappaRule(3), [0.5, 0.5, 0.0], 0.5) == [True, True, False]


def test_the_threshold_is_the_formula():
    # 0.8·m^0.45 at c = 1; c^0.85 below, c^0.4 above
    rule = KappaRule(100)
    assert rule.threshold(0.5) == pytest.approx(0.8 * 100**0.45)
    for c, power in ((0.01, 0.85), (0.3, 0.85), (9.0, 0.4)):
        assert rule.threshold(c / (1 + c)) == pytest.approx(0.8 * 100**0.45 * c**power)


def test_verdicts_of_the_rule_have_no_certificate():
    p = np.random.default_rng(0).dirichlet(np.full(60, 0.3))
    rule = KappaRule(8)
    step = rule.step(p)
    verdicts = [step.accepts(i, tau=0.1) for i in range(60)]
    assert [bool(verdict) for verdict in verdicts] == (kappa(p, 8) * p >= rule.threshold(0.1)).tolist()
    assert step.kappa == kappa(p, 8)
    assert {verdict.method for verdict in verdicts} == {"kappa rule"}
    assert not any(verdict.decided for verdict in verdicts)
    assert {bool(verdict) for verdict in verdicts} == {True, False}
