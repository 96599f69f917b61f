import numpy as np
import pytest

from unspool.basis.globbing import globbed
from unspool.basis.reference import reference
from unspool.basis.whitening import whiten


@pytest.mark.parametrize("free", [40, 120])
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_rounds_reach_the_optimum_of_a_general_solver(free, tau):
    dice = np.random.default_rng(0)
    W, p, token, slope = dice.normal(size=(120, 4)), dice.dirichlet(np.full(120, 2.0)), 7, tau / (1 - tau)
    white = whiten(W)
    x = white.X_VK[token].astype(np.float64)
    lam = x / (x @ x)
    s = white.X_VK @ lam
    y = np.where(s > 0, slope * p, -p)
    y[token] = 0
    rounds = list(
        globbed(
            white, np.empty(0, dtype=np.intp), p, token, slope, lam, np.zeros(120), s, 1e-3 * p[token], 120
        )
    )
    best = p[token] * reference(W, p, token, tau).theta
    assert max(t for _, _, t in rounds) == pytest.approx(best, rel=1e-2)
    for lam_K, y_V, _ in globbed(
        white, np.empty(0, dtype=np.intp), p, token, slope, lam, y, s, p[token], free
    ):
        assert lam_K @ x == pytest.approx(1, rel=1e-4)
        assert (y_V >= -p - 1e-12).all()
        assert (y_V <= slope * p + 1e-12).all()


def test_two_neighbours_by_hand():
    # Each neighbour takes c times its mass: t = 2·0.4·0.25.
    white, p = whiten(np.array([[0.0], [1.0], [-1.0]])), np.array([0.2, 0.4, 0.4])
    x = white.X_VK[0].astype(np.float64)
    lam = x / (x @ x)
    lam_K, y_V, t = next(
        globbed(white, np.empty(0, dtype=np.intp), p, 0, 0.25, lam, np.zeros(3), white.X_VK @ lam, 0.1, 3)
    )
    assert t == pytest.approx(0.2, rel=1e-3)
    np.testing.assert_allclose(y_V, [0, 0.1, 0.1], atol=1e-3)
    assert lam_K @ x == pytest.approx(1, rel=1e-5)
