import numpy as np
import pytest
from scipy.optimize import linprog

from unspool.basis.solver.interior_point import InteriorPoint


def solved(Z, r, w, slope, linear):
    method = InteriorPoint(Z, r, w, slope, linear, np.zeros(Z.shape[1]), np.zeros(len(w)))
    for _ in range(60):
        if not method.iterate() or (method.residual < 1e-10 and method.high - method.low < 1e-9):
            break
    return method


def test_a_median_by_hand():
    # min over μ of Σ|rⱼ − μ|: the median 3, and 2 + 1 + 0 + 4 + 6 = 13
    r = np.array([1.0, 2.0, 3.0, 7.0, 9.0])
    method = solved(np.ones((5, 1)), r, np.ones(5), 1.0, np.zeros(1))
    assert method.mu_K == pytest.approx([3], abs=1e-5)
    assert method.low == pytest.approx(13)
    assert method.high == pytest.approx(13)


def test_a_quantile_by_hand():
    # max(3s, −s): three quarters of the weight lies below the optimum
    method = solved(np.ones((4, 1)), np.array([0.0, 1.0, 2.0, 10.0]), np.ones(4), 3.0, np.zeros(1))
    assert 2 - 1e-4 <= method.mu_K[0] <= 10 + 1e-4
    assert method.high == pytest.approx(2 + 1 + 3 * 8)


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_a_linear_program(seed):
    dice = np.random.default_rng(seed)
    n, k, slope = 60, 5, 10.0 ** dice.uniform(-2, 1)
    Z, r, w = dice.standard_normal((n, k)), dice.standard_normal(n), dice.random(n) ** 4 + 1e-6
    y = w * dice.uniform(-0.5, 0.5 * slope, n)
    method = solved(Z, r, w, slope, y @ Z)  # feasible: y itself
    found = linprog(-r, A_eq=Z.T, b_eq=y @ Z, bounds=np.column_stack([-w, slope * w]))
    assert method.low == pytest.approx(-found.fun, rel=1e-6, abs=1e-9)
    assert method.low <= method.high + 1e-9
    assert (method.y_N >= -w).all()
    assert (method.y_N <= slope * w).all()


def test_many_rows_take_the_other_factorisation():
    dice = np.random.default_rng(0)
    Z, r, w = dice.standard_normal((9000, 4)), dice.standard_normal(9000), dice.random(9000)
    method = solved(Z, r, w, 0.5, np.zeros(4))
    assert method.high - method.low < 1e-6 * method.high
    assert method.residual < 1e-8


def test_dependent_columns_do_no_harm():
    dice = np.random.default_rng(0)
    Z = dice.standard_normal((40, 2))
    both = solved(np.column_stack([Z, Z[:, 0]]), np.sin(np.arange(40)), np.ones(40), 1.0, np.zeros(3))
    one = solved(Z, np.sin(np.arange(40)), np.ones(40), 1.0, np.zeros(2))
    assert both.low == pytest.approx(one.low, rel=1e-6)


def test_what_nothing_balances_falls_without_end():
    method = InteriorPoint(
        np.ones((3, 1)), np.zeros(3), np.ones(3), 1.0, np.array([10.0]), np.zeros(1), np.zeros(3)
    )
    for _ in range(30):
        if not method.iterate():
            break
    assert method.residual > 1
    assert method.high < 0
