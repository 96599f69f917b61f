import numpy as np

from unspool.basis.distribution import Distribution
from unspool.basis.least_squares import LeastSquares
from unspool.basis.whitening import whiten


def normalised(white, lam_KQ, tokens):
    return lam_KQ / np.einsum("qk,kq->q", white.X_VK[tokens], lam_KQ)


def objective(white, dist, lam_K, n):
    p = dist.head_N[:n]
    omega = np.maximum(p * p, p / dist.kappa)
    s = white.X_VK[dist.order_N[:n]].astype(np.float64) @ lam_K
    return omega @ s**2 + dist.mass_N[n] / dist.kappa * lam_K @ lam_K


def test_the_slope_is_the_least_of_all_that_have_one_at_their_token():
    dice = np.random.default_rng(0)
    white = whiten(dice.normal(size=(300, 4)))
    dist = Distribution(dice.dirichlet(np.full(300, 0.5)), 5)
    tokens = np.array([dist.order_N[3], dist.order_N[200]])  # one of the factor's rows, and one of the tail
    lam_KQ = normalised(white, LeastSquares(white, dist, rows=50).slopes(tokens), tokens)
    for q, token in enumerate(tokens):
        best = objective(white, dist, lam_KQ[:, q], 50)
        for _ in range(20):
            other = lam_KQ[:, q] + 0.1 * dice.normal(size=5)
            other /= white.X_VK[token] @ other
            assert objective(white, dist, other, 50) > best * (1 - 1e-6)


def test_where_the_rows_are_as_many_as_the_unknowns_only_the_token_is_left():
    # Two tokens, two unknowns: s = (1, 0) costs nothing but the token itself.
    white = whiten(np.array([[1.0], [-1.0]]))
    dist = Distribution(np.array([0.6, 0.4]), 2)
    first = LeastSquares(white, dist)
    assert first.usable
    lam_KQ = normalised(white, first.slopes(np.array([0, 1])), np.array([0, 1]))
    np.testing.assert_allclose(white.X_VK @ lam_KQ, np.eye(2), atol=1e-6)
