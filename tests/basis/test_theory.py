from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.basis.theory import (
    delta_from_tau,
    optimality_residual,
    overestimation,
    slope_from_tau,
    tau_from_delta,
    the_tau,
    underestimation,
)


def test_a_hand_computed_bound():
    assert tau_from_delta(log(2)) == pytest.approx(0.5)
    assert slope_from_tau(0.2) == pytest.approx(0.25)
    true, model = [0.5, 0.5, 0.0], [0.4, 0.4, 0.2]
    assert underestimation(true, model) == pytest.approx(log(1.25))
    assert overestimation(true, model) == pytest.approx(0.2)
    assert underestimation([1.0, 0.0], [0.0, 1.0]) == inf


@given(st.floats(1e-6, 1 - 1e-6))
def test_tau_and_delta_are_two_names_of_one_bound(tau):
    assert tau_from_delta(delta_from_tau(tau)) == pytest.approx(tau)
    assert slope_from_tau(tau) == pytest.approx(exp(delta_from_tau(tau)) - 1)


@given(st.integers(0, 1000))
def test_theorem_1_holds_of_any_two_distributions(seed):
    true, model = np.random.default_rng(seed).dirichlet(np.ones(6), size=2)
    assert overestimation(true, model) <= tau_from_delta(underestimation(true, model)) + 1e-12


def test_theorem_2_holds_at_the_optimum_of_cross_entropy():
    dice = np.random.default_rng(0)
    W, true, h = dice.normal(size=(5, 2)), dice.dirichlet(np.ones(5)), np.zeros(2)

    def model(h):
        e = np.exp(W @ h)
        return e / e.sum()

    for _ in range(5000):
        h += 0.1 * W.T @ (true - model(h))
    np.testing.assert_allclose(optimality_residual(W, true, model(h)), 0, atol=1e-9)
    assert np.abs(optimality_residual(W, true, model(h + 0.1))).max() > 1e-3


def test_what_is_no_bound_is_refused():
    for tau in (0, 1, -0.5, float("nan")):
        with pytest.raises(ValueError, match="tau is"):
            slope_from_tau(tau)
    with pytest.raises(ValueError, match="delta is"):
        tau_from_delta(-1)
    with pytest.raises(ValueError, match="neither"):
        the_tau(None, None)
    with pytest.raises(ValueError, match="must be the same"):
        underestimation([1.0], [0.5, 0.5])
    with pytest.raises(ValueError, match="one per token"):
        optimality_residual(np.ones((2, 1)), [0.5, 0.5], [1.0])
