import numpy as np

from unspool.basis.certificate import Acceptance, Rejection
from unspool.basis.check import check

W = np.array([[0.0], [1.0], [-1.0], [2.0]])
P = np.array([0.1, 0.4, 0.4, 0.1])


def test_a_hand_computed_acceptance():
    # s = w − 1 is 1 at the last token: f = 0.1·1 + 0 + 0.4·2 = 0.9 is no proof; s = (w + 1)/3 is none either.
    assert not check(Acceptance(3, np.array([1.0, -1.0])), W, P, 0.1)
    # s = 1: f = 0.6·c < 0.4 iff c < 2/3.
    assert check(Acceptance(1, np.array([0.0, 1.0])), W, P, 0.39)
    assert not check(Acceptance(1, np.array([0.0, 1.0])), W, P, 0.41)
    assert not check(Acceptance(1, np.array([0.0, -1.0])), W, P, 0.39)
    assert check(Acceptance(1, np.array([0.0, 7.0])), W, 2 * P, 0.39)


def test_a_hand_computed_rejection():
    # Token 0 is halfway between 1 and 2: half of its mass to each balances it, and needs c ≥ 0.125.
    proof = Rejection(0, np.array([1, 2]), np.array([0.05, 0.05]))
    assert check(proof, W, P, 0.2)
    assert not check(proof, W, P, 0.1)


def test_what_does_not_balance_is_mended_only_within_the_box():
    assert check(Rejection(0, np.array([1, 2]), np.array([0.05 + 1e-12, 0.05])), W, P, 0.2)
    # Two tokens leave no room: what is not there cannot be mended.
    assert not check(Rejection(0, np.array([1]), np.array([0.5])), np.array([[0.0], [1.0]]), [0.5, 0.5], 0.9)


def test_units_do_not_matter():
    proof = Rejection(0, np.array([1, 2]), np.array([0.05, 0.05]))
    for scale in (1e-8, 1e8):
        assert check(proof, scale * W, P, 0.2)
        assert not check(proof, scale * W, P, 0.1)
