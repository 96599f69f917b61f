import sys

import numpy as np
import pytest

from unspool.basis.reference import Reference, reference


def test_hand_computed_optima():
    # Token 0 lies between its neighbours: each can take c times its mass, t = 2·0.4·c.
    W, p = np.array([[0.0], [1.0], [-1.0]]), np.array([0.2, 0.4, 0.4])
    assert reference(W, p, 0, 0.2).theta == pytest.approx(0.25 * 0.8 / 0.2)
    # A corner: y₀ + y₂ = t, −y₂ = t, so y₀ = 2t and y₂ = −t: t ≤ 0.4 and 2t ≤ c·0.2.
    assert reference(W, p, 1, 0.2).theta == pytest.approx(0.25 * 0.1 / 0.4)
    assert reference(W, p, 1, 0.2)
    assert not reference(W, p, 0, 0.5)


def test_without_a_basis_it_is_the_threshold():
    p = np.random.default_rng(0).dirichlet(np.ones(9))
    for tau in (0.05, 0.1, 0.3):
        assert [bool(reference(np.zeros((9, 0)), p, i, tau)) for i in range(9)] == (p > tau).tolist()


def test_theta_grows_with_tau():
    dice = np.random.default_rng(1)
    W, p = dice.normal(size=(30, 4)), dice.dirichlet(np.ones(30))
    thetas = [reference(W, p, 3, tau).theta for tau in (0.01, 0.1, 0.3, 0.6)]
    assert thetas == sorted(thetas)
    assert thetas[0] < thetas[-1]


def test_near_is_within_the_solvers_tolerance():
    assert Reference(1 + 1e-7).near
    assert Reference(1 - 1e-7).near
    assert not Reference(1.001).near
    assert not Reference(0.999).near
    assert Reference(0.999).accepted
    assert not Reference(1.0).accepted


def test_a_solver_that_fails_is_an_error(monkeypatch):
    class Failed:
        status, message = 4, "numbers ran out"

    monkeypatch.setattr(sys.modules["unspool.basis.reference"], "linprog", lambda *_, **__: Failed)
    with pytest.raises(ArithmeticError, match="numbers ran out"):
        reference(np.eye(2), [0.5, 0.5], 0, 0.1)
