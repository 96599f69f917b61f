import numpy as np
import pytest
from scipy.optimize import linprog

from unspool.basis.interior_point import InteriorPoint


def solved(Z, r, w, slope, linear):
    method = InteriorPoint(Z, r, w, slope, linear, np.zeros(Z.shape[1]), np.zeros(len(r)))
    for _ in range(40):
        if not method.iterate() or method.high - method.low < 1e-9:
            break
    return method


def test_a_weighted_median():
    # c = 1, Z = 1: minimise Σ|rⱼ − μ|, whose least value over (0, 1, 5) is 5, at μ = 1.
    method = solved(np.ones((3, 1)), np.array([0.0, 1.0, 5.0]), np.ones(3), 1.0, np.zeros(1))
    assert method.mu_K[0] == pytest.approx(1, abs=1e-4)
    assert method.high == pytest.approx(5)
    assert method.low == pytest.approx(5)
    assert method.residual < 1e-8


@pytest.mark.parametrize("slope", [0.05, 1.0, 9.0])
def test_both_sides_meet_at_the_optimum_of_a_general_solver(slope):
    dice = np.random.default_rng(0)
    Z, r, w = dice.normal(size=(60, 4)), dice.normal(size=60), dice.uniform(0.1, 1, size=60)
    linear = 0.1 * min(slope, 1) * Z.T @ (w * dice.uniform(-1, 1, size=60))
    method = solved(Z, r, w, slope, linear)
    truth = linprog(-r, A_eq=Z.T, b_eq=linear, bounds=np.column_stack([-w, slope * w]))
    assert method.low == pytest.approx(-truth.fun, rel=1e-6)
    assert method.high == pytest.approx(-truth.fun, rel=1e-6)
    assert (method.y_N > -w).all()
    assert (method.y_N < slope * w).all()


def test_dependent_columns_do_no_harm():
    dice = np.random.default_rng(1)
    Z, r, w = dice.normal(size=(40, 2)), dice.normal(size=40), np.ones(40)
    twice = solved(np.hstack([Z, Z]), r, w, 0.5, np.zeros(4))
    assert twice.high == pytest.approx(solved(Z, r, w, 0.5, np.zeros(2)).high, rel=1e-6)
