import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.basis.kappa_rule import KappaRule, RowLengths, kappa, typical_threshold


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
    assert sum(accepted(KappaRule(4, (1.0,), (0.5,)), p / p.sum(), 0.5)) == 1


def test_the_order_of_tokens_does_not_matter():
    p = np.random.default_rng(0).dirichlet(np.full(200, 0.1))
    assert kappa(p, 20) == pytest.approx(kappa(p[::-1], 20))


def test_m_is_checked():
    with pytest.raises(ValueError, match="whole number ≥ 1"):
        kappa([1.0], 0)


def test_the_rule_keeps_what_is_above_its_threshold():
    rule = KappaRule(2, (1.0,), (0.5,))
    p = np.array([0.5, 0.3, 0.2])  # κ = 2: the rule is p ≥ 0.25
    assert accepted(rule, p, 0.5) == [True, True, False]


def test_no_token_of_probability_zero_is_kept():
    assert accepted(KappaRule(3, (1.0,), (0.5,)), [0.5, 0.5, 0.0], 0.5) == [True, True, False]


def test_g_is_a_power_between_its_knots_and_beyond():
    rule = KappaRule(10, (0.1, 1.0), (2.0, 20.0))
    assert rule.threshold(0.5) == pytest.approx(20)  # c = 1
    assert rule.threshold(1 / 11) == pytest.approx(2)  # c = 0.1
    middle = 10**-0.5
    assert rule.threshold(middle / (1 + middle)) == pytest.approx(2 * 10**0.5)
    assert rule.threshold(10 / 11) == pytest.approx(200)  # c = 10


@pytest.mark.parametrize(
    ("slopes", "thresholds", "match"),
    [
        ((), (), "one threshold for each"),
        ((1.0,), (1.0, 2.0), "one threshold for each"),
        ((2.0, 1.0), (1.0, 2.0), "increasing"),
    ],
)
def test_knots_are_checked(slopes, thresholds, match):
    with pytest.raises(ValueError, match=match):
        KappaRule(10, slopes, thresholds)


def test_the_formula_at_its_knots_and_between():
    # 0.8·m^0.45 at c = 1; c^0.85 below, c^0.4 above
    rule = KappaRule.typical(100)
    assert rule.threshold(0.5) == pytest.approx(0.8 * 100**0.45)
    for c, power in ((0.01, 0.85), (0.3, 0.85), (9.0, 0.4)):
        assert rule.threshold(c / (1 + c)) == pytest.approx(0.8 * 100**0.45 * c**power)
        assert typical_threshold(100, c) == pytest.approx(0.8 * 100**0.45 * c**power)


def test_verdicts_of_the_rule_have_no_certificate():
    p = np.random.default_rng(0).dirichlet(np.full(60, 0.3))
    rule = KappaRule.typical(8)
    step = rule.step(p)
    verdicts = [step.accepts(i, tau=0.1) for i in range(60)]
    assert [bool(verdict) for verdict in verdicts] == (kappa(p, 8) * p >= rule.threshold(0.1)).tolist()
    assert step.kappa == kappa(p, 8)
    assert {verdict.method for verdict in verdicts} == {"kappa rule"}
    assert not any(verdict.decided for verdict in verdicts)
    assert {bool(verdict) for verdict in verdicts} == {True, False}


def test_row_lengths_by_hand():
    # m = 2: κ = 2, so κpℓ = 0.75, 0.45, 0.6
    rule = KappaRule(2, (1.0,), (0.5,), RowLengths(np.array([0.75, 0.75, 1.5])))
    p = np.array([0.5, 0.3, 0.2])
    assert accepted(rule, p, 0.5) == [True, False, True]
    # the lengths belong to tokens: κpℓ = 0.3, 0.45, 1.5
    assert accepted(rule, p[::-1], 0.5) == [False, False, True]
    assert rule.step(p).kappa == pytest.approx(2)


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=60).filter(any),
    st.integers(1, 20),
    st.floats(0.01, 0.99),
)
def test_lengths_of_one_are_the_rule_without_them(values, m, tau):
    p = np.array(values) / sum(values)
    plain = KappaRule.typical(m)
    ones = KappaRule(m, plain.slopes, plain.thresholds, RowLengths(np.ones(len(p))))
    assert accepted(ones, p, tau) == accepted(plain, p, tau)


def test_no_length_revives_a_token_of_probability_zero():
    rule = KappaRule(3, (1.0,), (0.5,), RowLengths(np.array([1.0, 1.0, 100.0])))
    assert accepted(rule, [0.5, 0.5, 0.0], 0.5) == [True, True, False]


def test_lengths_of_another_vocabulary_are_refused():
    rule = KappaRule(2, (1.0,), (0.5,), RowLengths(np.ones(4)))
    with pytest.raises(ValueError, match="lengths for 4 tokens do not fit probabilities of 3"):
        rule.step([0.5, 0.3, 0.2])


def test_rules_with_lengths_can_be_compared_and_hashed():
    one, same, other = (
        KappaRule(2, (1.0,), (0.5,), RowLengths(np.array(x))) for x in ([1, 2], [1.0, 2.0], [1, 3])
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != KappaRule(2, (1.0,), (0.5,))
