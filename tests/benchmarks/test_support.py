"""The settings at which benchmarks/support.py compares truncation rules."""

import pytest
import torch
from hypothesis import given, strategies as st

import support
import unspool as us

P = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]])


def dial(rule, loosest, strictest, p_CV=P):
    return support.Dial(lambda setting: us.survivors(rule(setting), p_CV.log()), loosest, strictest)


def test_at_mass_keeps_just_enough():
    # ε keeps 0.4 + 0.3 + 0.2 and 0.7 up to 0.2, and only 0.4 + 0.3 and 0.7 beyond: 0.8 and 0.7 on average
    setting, kept = support.at_mass(dial(us.Epsilon, 0.0, 1.0), P, 0.75)
    assert setting == pytest.approx(0.2)
    assert kept.tolist() == [[True, True, True, False], [True, False, False, False]]
    # top-p, which is the other way round
    setting, kept = support.at_mass(dial(us.TopP, 1.0, 1e-6), P, 0.75)
    assert kept.sum().item() == 4
    assert 0.7 <= setting < 0.9


def test_at_mass_returns_the_strictest_setting_that_is_enough():
    assert support.at_mass(dial(us.Epsilon, 0.0, 1.0), P, 0.5)[0] == 1.0


def test_at_mass_stops_when_it_is_close():
    asked = []
    exact = dial(us.MinP, 0.0, 1.0)
    slow = support.Dial(lambda setting: asked.append(setting) or exact.keeps(setting), 0.0, 1.0)
    _, kept = support.at_mass(slow, P, 0.75, close=0.2)
    assert 0.75 <= float((P * kept).sum(-1).mean()) <= 0.95
    assert len(asked) < 10


@given(st.lists(st.floats(-4, 4), min_size=12, max_size=12), st.floats(0.05, 0.99))
def test_at_mass_reaches_the_mass_and_nothing_stricter_does(scores, mass):
    p_CV = torch.tensor(scores).view(2, 6).softmax(-1)
    setting, kept_CV = support.at_mass(dial(us.MinP, 0.0, 1.0, p_CV), p_CV, mass)
    assert float((p_CV * kept_CV).sum(-1).mean()) >= mass - 1e-5
    if setting < 0.999:
        stricter = us.survivors(us.MinP(min(setting * 1.001 + 1e-9, 1.0)), p_CV.log())
        assert float((p_CV * stricter).sum(-1).mean()) <= mass + 1e-5 or stricter.equal(kept_CV)
