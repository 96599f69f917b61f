from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.basis.verifier import Exact, combination, power_of_two

floats = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9)


@given(floats)
def test_floats_are_taken_as_they_are(values):
    assert Exact.of(np.array(values)).fractions() == [Fraction(x) for x in values]


@given(floats, floats)
def test_sums_and_products_are_exact(values, others):
    n = min(len(values), len(others))
    x, y = (Exact.of(np.array(part[:n])) for part in (values, others))
    pairs = list(zip(values[:n], others[:n], strict=True))
    assert (x + y).fractions() == [Fraction(a) + Fraction(b) for a, b in pairs]
    assert x.dot(y) == sum(Fraction(a) * Fraction(b) for a, b in pairs)


@pytest.mark.parametrize("values", [[5e-324, 1e308, -1.0], [0.0, 0.0], [0.1, -0.2, 0.3]])
def test_from_the_smallest_to_the_largest(values):
    assert Exact.of(np.array(values)).fractions() == [Fraction(x) for x in values]


def test_nothing_at_all_is_fine():
    assert Exact.of(np.empty(0)).fractions() == []
    assert Exact.of(np.empty(0)).dot(Exact.of(np.empty(0))) == 0


def test_powers_of_two():
    assert [power_of_two(k) for k in (-2, 0, 3)] == [Fraction(1, 4), 1, 8]


def whole(rows):
    return [[Fraction(x) for x in row] for row in rows]


def test_a_combination_by_hand():
    # 2·(1, 0, 1) − 1/3·(0, 3, 1)
    rows, wanted = whole([[1, 0, 1], [0, 3, 1]]), [Fraction(2), Fraction(-1), Fraction(5, 3)]
    assert combination(rows, wanted) == [2, Fraction(-1, 3)]
    assert combination(rows, [Fraction(2), Fraction(-1), Fraction(2)]) is None


def test_a_row_that_others_make_up_is_not_used():
    rows = whole([[1, 2], [2, 4], [0, 1]])
    assert combination(rows, [Fraction(3), Fraction(7)]) == [3, 0, 1]
    assert combination(whole([[0, 0]]), [Fraction(0), Fraction(0)]) == [0]
    assert combination(whole([[0, 0]]), [Fraction(0), Fraction(1)]) is None
    assert combination([], []) == []


@given(st.integers(0, 10**6))
def test_what_was_combined_is_found(seed):
    dice = Random(seed)
    rows = whole(
        [
            [dice.choice([-1, 1]) * dice.random() * 10 ** dice.randint(-9, 9) for _ in range(5)]
            for _ in range(4)
        ]
    )
    x = [Fraction(dice.randint(-9, 9), dice.randint(1, 9)) for _ in rows]
    wanted = [sum(a * row[k] for a, row in zip(x, rows, strict=True)) for k in range(5)]
    assert combination(rows, wanted) == x
    wanted[dice.randrange(5)] += Fraction(1, 10**40)
    assert combination(rows, wanted) is None
