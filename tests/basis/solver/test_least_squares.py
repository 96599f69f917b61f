import numpy as np
import pytest

from unspool.basis.arrays import probabilities
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.douglas_rachford import LeastSquares
from unspool.basis.solver.whitening import whiten


@pytest.mark.parametrize("rank", [3, 400])
def test_it_minimises_what_it_says(white, dist, rank):
    token = int(dist.order_N[rank])
    lam = LeastSquares(white, dist).slopes(np.array([token]))[:, 0]
    X0 = white.X_VK[dist.order_N[:128]].astype(np.float64)
    omega = np.maximum(dist.head_N[:128] ** 2, dist.head_N[:128] / dist.kappa)
    x = white.X_VK[token].astype(np.float64)
    quadratic = (X0 * omega[:, None]).T @ X0 + np.eye(len(x)) * dist.mass_N[128] / dist.kappa
    expected = np.linalg.solve(quadratic, x)
    assert lam / (lam @ x) == pytest.approx(expected / (expected @ x), rel=1e-4, abs=1e-6)


def test_tokens_side_by_side_are_tokens_one_by_one(white, dist):
    ls, tokens = LeastSquares(white, dist), dist.order_N[[0, 5, 200, 700]]
    together = ls.slopes(tokens)
    for q, token in enumerate(tokens):
        assert together[:, q] == pytest.approx(ls.slopes(np.array([token]))[:, 0])


def test_a_row_that_is_independent_of_the_others_gets_s_zero_on_them():
    W = np.eye(4)
    white = whiten(W)
    dist = Distribution(probabilities(np.array([0.4, 0.3, 0.2, 0.1]), 4), white.X_VK.shape[1])
    lam = LeastSquares(white, dist).slopes(np.array([2]))[:, 0]
    s = white.X_VK.astype(np.float64) @ lam
    assert np.abs(np.delete(s / s[2], 2)).max() < 1e-4
