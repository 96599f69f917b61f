from math import inf, nan

import numpy as np
import pytest

from unspool.basis import work
from unspool.basis.work import BUDGET, checked_budget


def test_what_grows_with_rows_and_unknowns_costs_more():
    for cost in (
        work.factorising,
        work.iterating,
        work.setting,
        work.solving,
        work.rejecting,
        work.accepting,
    ):
        assert 0 < cost(100, 20) < cost(1000, 20) < cost(1000, 200)
    assert work.settling(100, 20, 5000) < work.settling(100, 20, 50000)


def test_by_hand():
    assert work.factorising(12, 6) == 12 * 36 / 2 + 36
    assert work.iterating(10, 3) == 8 * 2 * 30 + 80 * 9
    assert work.accepting(10, 3) == 300


def test_a_step_in_rational_arithmetic_is_the_dearest_per_row():
    assert work.verifying(100, 50) > 100 * work.rejecting(100, 50)


def test_a_budget_is_a_positive_number_or_none():
    assert checked_budget(None) == inf
    assert checked_budget(BUDGET) == BUDGET
    assert checked_budget(np.int64(7)) == 7.0
    assert checked_budget(np.float32(0.5)) == 0.5  # numpy compares it with no number beyond its own range
    for wrong in (0, -1.0, nan, inf, 10**400):
        with pytest.raises(ValueError, match="or None for no limit"):
            checked_budget(wrong)
    for wrong in ("1e9", True):
        with pytest.raises(TypeError, match="budget is"):
            checked_budget(wrong)
