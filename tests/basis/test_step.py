import numpy as np
import pytest

from unspool.basis import Acceptance, BasisTest
from unspool.basis.kappa import kappa

W = np.array([[0.0], [1.0], [-1.0]])
P = np.array([0.1, 0.45, 0.45])


def test_verdicts_come_in_the_order_asked_and_are_kept():
    step = BasisTest(W).step(P)
    verdicts = step.verdicts([2, 0, 2], tau=0.2)
    assert [v.token for v in verdicts] == [2, 0, 2]
    assert [v.accepted for v in verdicts] == [True, False, True]
    assert step.accepts(0, tau=0.2) is verdicts[1]
    assert step.accepts(0, tau=0.01).tau == 0.01
    assert step.kappa == pytest.approx(kappa(P, 2))


def test_a_mask_can_be_narrowed():
    step = BasisTest(W).step(P)
    assert step.mask(0.2).tolist() == [False, True, True]
    assert step.mask(0.01).tolist() == [True, True, True]
    assert step.mask(0.01, top=2).tolist() == [False, True, True]
    assert step.mask(0.01, floor=0.2).tolist() == [False, True, True]
    with pytest.raises(ValueError, match="top is 0"):
        step.mask(0.1, top=0)


def test_tokens_of_no_probability_are_not_asked_about():
    step = BasisTest(W).step(np.array([0.5, 0.5, 0.0]))
    assert not step.mask(0.1)[2]
    with pytest.raises(ValueError, match="probability zero"):
        step.accepts(2, tau=0.1)
    with pytest.raises(IndexError, match="0 … 2"):
        step.accepts(3, tau=0.1)


def test_a_slope_says_up_to_where_it_proves():
    # s = 1: p̂ᵢ/(1 − p̂ᵢ).
    step = BasisTest(W).step(P)
    assert step.accepted_up_to(Acceptance(1, np.array([0.0, 2.0]))) == pytest.approx(0.45 / 0.55)
    # s = w: p̂₁ − 0.45·1 = 0.
    assert step.accepted_up_to(Acceptance(1, np.array([1.0, 0.0]))) == np.inf
