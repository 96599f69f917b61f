import numpy as np
import pytest

from unspool.basis.accept import Evaluator
from unspool.basis.distribution import Distribution
from unspool.basis.whitening import whiten


def f(W, p, slopes, i, c):
    """The definition: Σ over the others of p·max(cs, −s), s = 1 at the token."""
    s = W @ slopes[:-1] + slopes[-1]
    s = np.delete(s / s[i], i)
    return np.delete(p, i) @ np.maximum(c * s, -s)


def test_the_constant_slope_is_the_threshold():
    W, p = np.array([[0.55], [0.71], [0.29]]), np.array([0.3, 0.5, 0.2])
    white = whiten(W)
    constant = np.linalg.solve(white.basis_MK, [0.0, 1.0])
    upper = Evaluator(white, Distribution(p, 2)).upper(
        np.column_stack([constant, constant]), np.array([1, 0]), 0.9
    )
    np.testing.assert_allclose(upper.value_Q, [0.45, 0.63], rtol=1e-8)
    assert upper.proved_Q.tolist() == [True, False]


@pytest.mark.parametrize("v", [40, 6000])
def test_bounds_are_never_below_the_value_and_proofs_are_proofs(v):
    dice = np.random.default_rng(0)
    W, p = dice.normal(size=(v, 3)), dice.dirichlet(np.full(v, 0.05)) + 1e-12
    p /= p.sum()
    white, dist = whiten(W), Distribution(p, 4)
    tokens = dist.order_N[np.array([0, 1, 2, 5, 9, 30])]
    constant = np.linalg.lstsq(white.basis_MK, np.array([0.0, 0, 0, 1]), rcond=None)[0]
    lam = constant[:, None] + 0.1 * dice.normal(size=(4, 6))
    proved = set()
    for c in (0.01, 0.1, 1.0):
        upper = Evaluator(white, dist).upper(lam, tokens, c)
        for q, i in enumerate(tokens):
            value = f(W, p, upper.slopes_MQ[:, q], i, c)
            assert upper.value_Q[q] >= value
            assert upper.proved_Q[q] == (value < p[i])
            assert white.rows(np.array([i]))[0] @ upper.slopes_MQ[:, q] == pytest.approx(1)
            proved.add(bool(upper.proved_Q[q]))
    assert proved == {True, False}


def test_a_slope_that_is_zero_at_its_token_proves_nothing():
    white = whiten(np.array([[1.0], [0.0], [-1.0]]))
    lam = np.zeros((2, 1))
    upper = Evaluator(white, Distribution(np.array([0.1, 0.8, 0.1]), 2)).upper(lam, np.array([1]), 0.5)
    assert not upper.proved_Q[0]
    assert upper.value_Q[0] == np.inf
