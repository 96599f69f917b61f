from math import log

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.basis.theory import (
    check_tau,
    delta_from_tau,
    optimality_residual,
    overestimation,
    resolve_tau,
    slope_from_tau,
    tau_from_delta,
    underestimation,
)


def test_the_papers_numbers():
    assert tau_from_delta(log(1.9)) == pytest.approx(0.4737, abs=1e-4)
    assert slope_from_tau(1 - 1 / 1.9) == pytest.approx(0.9)


@given(st.floats(1e-9, 30))
def test_tau_and_delta_are_inverse(delta):
    assert delta_from_tau(tau_from_delta(delta)) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("tau", [0, 1, -0.1, 1.5, float("nan")])
def test_a_tau_outside_is_refused(tau):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        check_tau(tau)


@pytest.mark.parametrize("delta", [0, -1, float("inf"), float("nan")])
def test_a_delta_outside_is_refused(delta):
    with pytest.raises(ValueError, match="positive, finite"):
        tau_from_delta(delta)


def test_one_of_tau_and_delta_is_needed():
    assert resolve_tau(0.25, None) == 0.25
    assert resolve_tau(None, log(2)) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="neither was given"):
        resolve_tau(None, None)
    with pytest.raises(ValueError, match="both were given"):
        resolve_tau(0.1, 0.1)


def test_the_largest_underestimation_by_hand():
    true, model = [0.5, 0.5, 0.0], [0.25, 0.65, 0.1]
    assert underestimation(true, model) == pytest.approx(log(2))
    assert overestimation(true, model) == pytest.approx(0.15)
    assert underestimation([1.0, 0.0], [0.0, 1.0]) == float("inf")


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(1e-3, 1)), min_size=2, max_size=20).filter(
        lambda a: sum(x for x, _ in a) > 0.1
    )
)
def test_theorem_1(pairs):
    """Whatever p* and p̂ are, p̂ − p* ≤ 1 − e^(−δ) with their own δ."""
    true, model = (np.array(column) / sum(column) for column in zip(*pairs, strict=True))
    assert overestimation(true, model) <= -np.expm1(-underestimation(true, model)) + 1e-12


def test_theorem_2():
    """Gradient descent on the cross-entropy ends where Wᵀp* = Wᵀp̂."""
    rng = np.random.default_rng(0)
    W, true, h = rng.standard_normal((9, 3)), rng.dirichlet(np.ones(9)), np.zeros(3)
    for _ in range(5000):
        p = np.exp(W @ h - (W @ h).max())
        p /= p.sum()
        h += 0.1 * W.T @ (true - p)
    assert np.abs(optimality_residual(W, true, p)).max() < 1e-9
    assert np.abs(true - p).max() > 1e-3


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="expected one probability per token in both"):
        underestimation([1.0], [0.5, 0.5])
    with pytest.raises(ValueError, match="one row per token"):
        optimality_residual(np.ones((3, 2)), [0.5, 0.5], [0.5, 0.5])
