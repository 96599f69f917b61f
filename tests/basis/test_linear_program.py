import sys

import numpy as np
import pytest

from unspool.basis.linear_program import LinearProgramSolution, solve_linear_program


def test_theta_by_hand(example):
    # token 0: u₁·p̂₁/p̂₀ = 26/42·θ and u₂·p̂₂/p̂₀ = 16/42·θ, at most c = .9: the second binds
    theta = 0.9 * example.p[2] / example.p[0] * 42 / 16
    assert solve_linear_program(example.W, example.p, 0, example.tau).theta == pytest.approx(theta)
    assert not solve_linear_program(example.W, example.p, 0, example.tau)
    assert solve_linear_program(example.W, example.p, 1, example.tau)
    assert solve_linear_program(example.W, example.p, 2, example.tau)


def test_without_a_basis_it_is_the_threshold():
    p = np.array([0.5, 0.3, 0.2])
    for i in range(3):
        for tau in (0.1, 0.25, 0.4, 0.6):
            assert solve_linear_program(np.empty((3, 0)), p, i, tau).accepted == (p[i] > tau)


def test_nonnegativity_is_a_constraint():
    # Token 1 at 0 is between 0 and 2 at ±1: both gain c·p̂ at most, and so does its twin, token 3.
    W = np.array([[-1.0], [0.0], [1.0], [0.0]])
    p = np.array([0.02, 0.6, 0.02, 0.36])
    assert solve_linear_program(W, p, 1, 0.3).theta == pytest.approx(0.3 / 0.7 * 0.4 / 0.6)


def test_near_is_within_the_solvers_tolerance():
    assert LinearProgramSolution(1 + 1e-7).is_borderline
    assert not LinearProgramSolution(1.0001).is_borderline
    assert bool(LinearProgramSolution(0.5))
    assert not LinearProgramSolution(1.5)


def test_a_solver_that_fails_is_an_error_not_a_verdict(monkeypatch):
    class Failed:
        status, message = 4, "Numbers ran out."

    monkeypatch.setattr(sys.modules["unspool.basis.linear_program"], "linprog", lambda *_, **__: Failed)
    with pytest.raises(ArithmeticError, match="Numbers ran out"):
        solve_linear_program(np.eye(2), [0.5, 0.5], 0, 0.1)


def test_probabilities_of_many_orders_of_magnitude():
    W = np.array([[1.0], [-1.0], [0.0]])
    for small in (1e-3, 1e-6, 1e-9):
        p = np.array([0.5, 0.5 - small, small])
        found = solve_linear_program(W, p, 2, 0.3)  # each neighbour may gain c·p̂
        assert found.theta == pytest.approx(2 * 0.3 / 0.7 * p[1] / small, rel=1e-4)
        assert found.tolerance == pytest.approx(2e-6 * max(1, 0.5e-7 / small))


def test_a_range_that_highs_cannot_resolve_is_refused():
    p = np.array([0.5, 0.5, 1e-17])
    with pytest.raises(ArithmeticError, match="beyond the 1e\\+10"):
        solve_linear_program(np.array([[1.0], [-1.0], [0.0]]), p, 2, 0.3)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_an_invalid_problem_is_refused(broken):
    with pytest.raises(ValueError, match="NaN or infinite"):
        solve_linear_program(np.array([[broken], [0.0], [1.0]]), [0.5, 0.3, 0.2], 0, 0.3)
    with pytest.raises(ValueError, match="probability zero"):
        solve_linear_program(np.eye(3), [0.5, 0.5, 0.0], 2, 0.3)
