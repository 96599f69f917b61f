from math import inf, nan

import numpy as np
import pytest

from unspool.basis import BasisTest, work


def test_what_grows_with_rows_and_unknowns_costs_more():
    for cost in (
        work.factorization_cost,
        work.iteration_cost,
        work.tail_setup_cost,
        work.interior_point_cost,
        work.rejection_cost,
        work.acceptance_cost,
    ):
        assert 0 < cost(100, 20) < cost(1000, 20) < cost(1000, 200)
    assert work.reduction_cost(100, 20, 5000) < work.reduction_cost(100, 20, 50000)


def test_by_hand():
    assert work.factorization_cost(12, 6) == 12 * 36 / 2 + 36
    assert work.iteration_cost(10, 3) == 8 * 2 * 30 + 80 * 9
    assert work.acceptance_cost(10, 3) == 300


def test_a_step_in_rational_arithmetic_is_the_dearest_per_row():
    assert work.verification_cost(100, 50) > 100 * work.rejection_cost(100, 50)


def test_a_budget_is_a_positive_number_or_none():
    test = BasisTest(np.eye(3))

    def budget(value):
        return test.with_budget(value).budget

    assert budget(None) == inf
    assert budget(work.DEFAULT_BUDGET) == work.DEFAULT_BUDGET
    assert budget(np.int64(7)) == 7.0
    assert budget(np.float32(0.5)) == 0.5  # numpy compares it with no number beyond its own range
    for wrong in (0, -1.0, nan, inf, 10**400):
        with pytest.raises(ValueError, match="None is no limit"):
            budget(wrong)
    for wrong in ("1e9", True):
        with pytest.raises(TypeError, match="budget is"):
            budget(wrong)
