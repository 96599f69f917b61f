import numpy as np
import pytest

from unspool.basis import BasisTest
from unspool.basis.critical import critical_tau, tau_of
from unspool.basis.reference import reference


def test_two_neighbours_by_hand():
    # F = 0.9·c reaches p̂ = 0.1 at c = 1/9: τ = 0.1, the threshold itself.
    step = BasisTest(np.array([[0.0], [1.0], [-1.0]])).step(np.array([0.1, 0.45, 0.45]))
    low, high = critical_tau(step, 0)
    assert low == pytest.approx(0.1, rel=2e-3)
    assert high == pytest.approx(0.1, rel=2e-3)
    # An end: y₀ = 2t, so F = 0.05·c, or 0.45 at most: c = 9.
    low, high = critical_tau(step, 1)
    assert low <= 0.9 * (1 + 1e-6)
    assert high >= 0.9 * (1 - 1e-6)


def test_the_verdict_flips_within_the_bracket():
    dice = np.random.default_rng(0)
    W, p = dice.normal(size=(60, 5)), dice.dirichlet(np.full(60, 2.0))
    test = BasisTest(W)
    for i in (0, 20, 40):
        low, high = test.critical_tau(p, i, rtol=1e-2)
        assert p[i] * (1 - 1e-9) <= low <= high <= low * 1.0101
        assert reference(W, p, i, low * 0.999).accepted
        assert not reference(W, p, i, min(high * 1.001, 0.999)).accepted


def test_what_is_no_width_is_refused():
    step = BasisTest(np.eye(3, 1)).step(np.full(3, 1 / 3))
    with pytest.raises(ValueError, match="rtol is 0"):
        critical_tau(step, 0, 0)
    assert tau_of(1.0) == 0.5
    assert tau_of(np.inf) == 1.0
