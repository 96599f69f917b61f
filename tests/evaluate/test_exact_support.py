import math

import pytest
import torch
from hypothesis import given, strategies as st

import unspool as us
from unspool.evaluate.exact_support import Dial, at_mass, compare_support, support

P = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]])
TRUE = torch.tensor([[0.5, 0.0, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]])


def dial(rule, loosest, strictest, p_CV=P):
    return Dial(lambda setting: us.survivors(rule(setting), p_CV.log()), loosest, strictest)


def test_by_hand():
    kept = torch.tensor([[True, True, True, False], [True, True, False, False]])
    found = support(kept, P, TRUE)
    assert found.precision == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found.recall == 1
    assert found.mass_precision == pytest.approx((0.6 / 0.9 + 0.7 / 0.8) / 2)
    assert found.mass_recall == 1
    assert found.mass == pytest.approx((0.9 + 0.8) / 2)
    assert found.size == 2.5


def test_rejected_tokens_lower_recall():
    kept = torch.tensor([[False, True, True, False], [True, False, False, False]])
    found = support(kept, P, TRUE)
    assert found.recall == pytest.approx((1 / 2 + 1) / 2)
    assert found.mass_recall == pytest.approx((0.5 + 1) / 2)


def test_a_dial_is_turned_until_just_enough_is_left():
    # ε keeps 0.4 + 0.3 + 0.2 and 0.7 up to 0.2, and only 0.4 + 0.3 and 0.7 beyond: 0.8 and 0.7 on average
    setting, kept = at_mass(dial(us.Epsilon, 0.0, 1.0), P, 0.75)
    assert setting == pytest.approx(0.2)
    assert kept.tolist() == [[True, True, True, False], [True, False, False, False]]
    # top-p, which is the other way round
    setting, kept = at_mass(dial(us.TopP, 1.0, 1e-6), P, 0.75)
    assert kept.sum().item() == 4
    assert 0.7 <= setting < 0.9


def test_the_strictest_setting_is_used_if_it_keeps_enough():
    assert at_mass(dial(us.Epsilon, 0.0, 1.0), P, 0.5)[0] == 1.0


def test_near_enough_stops_the_search():
    asked = []
    exact = dial(us.MinP, 0.0, 1.0)
    slow = Dial(lambda setting: asked.append(setting) or exact.keeps(setting), 0.0, 1.0)
    _, kept = at_mass(slow, P, 0.75, close=0.2)
    assert 0.75 <= float((P * kept).sum(-1).mean()) <= 0.95
    assert len(asked) < 10


def test_rules_compare_at_the_same_mass():
    found = compare_support(
        {"epsilon": dial(us.Epsilon, 0.0, 1.0), "min-p": dial(us.MinP, 0.0, 1.0)}, P, TRUE, 0.75
    )
    assert found.keys() == {"epsilon", "min-p"}
    assert found["epsilon"].support.precision == pytest.approx((2 / 3 + 1) / 2)
    assert found["epsilon"].support.mass >= 0.75


@given(st.lists(st.floats(-4, 4), min_size=12, max_size=12), st.floats(0.05, 0.99))
def test_the_mass_is_reached_and_nothing_stricter_reaches_it(scores, mass):
    p_CV = torch.tensor(scores).view(2, 6).softmax(-1)
    setting, kept_CV = at_mass(dial(us.MinP, 0.0, 1.0, p_CV), p_CV, mass)
    assert float((p_CV * kept_CV).sum(-1).mean()) >= mass - 1e-5
    if setting < 0.999:
        stricter = us.survivors(us.MinP(min(setting * 1.001 + 1e-9, 1.0)), p_CV.log())
        assert float((p_CV * stricter).sum(-1).mean()) <= mass + 1e-5 or stricter.equal(kept_CV)


def test_perfect_knowledge_is_perfect():
    found = support(TRUE > 0, P, TRUE)
    assert (found.precision, found.recall, found.mass_precision, found.mass_recall) == (1, 1, 1, 1)


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="must all be"):
        support(P > 0, P, TRUE[:1])
    with pytest.raises(ValueError, match="keeps no token"):
        support(P > 0.5, P, TRUE)
    with pytest.raises(ValueError, match="mass is 0"):
        at_mass(dial(us.MinP, 0.0, 1.0), P, 0)
    with pytest.raises(ValueError, match="at its loosest setting"):
        at_mass(dial(us.MinP, 0.9, 1.0), P, 0.9)


@pytest.mark.parametrize("p", [[[math.nan, 1.0]], [[-0.5, 1.5]], [[0.0, 0.0]]])
def test_a_mass_needs_probabilities(p):
    with pytest.raises(ValueError, match="p̂ must hold probabilities"):
        at_mass(Dial(lambda least: torch.ones(1, 2, dtype=torch.bool), 0.0, 1.0), torch.tensor(p), 0.5)
