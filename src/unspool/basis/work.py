"""The cost of a test, counted in multiplications instead of seconds, so that verdicts agree on every machine.

The unit is one multiplication in a product of large float32 matrices. Other operations count more, by
rounded ratios of times on one core: 2 in float64, 8 (float32) or 16 (float64) in a matrix–vector product,
50 if rows of W are converted to float64, 80 in a triangular solve, 30,000 in rational arithmetic. n is the
number of rows and k = rank + 1 the number of unknowns.

    factorization      a Gram matrix of n rows and its Cholesky factor         n·k²/2 + k³/6
    iteration          one Douglas–Rachford iteration                          8·2nk + 80·k²
    tail setup         fixed multipliers of n tail rows                        80·nk
    interior point     one iteration                                           2·(n·k²/2 + k³/6) + 16·15nk
    reduction          fixing all but n of V rows for the interior point       2·n·k² + 50·(n + 2V)·k
    acceptance         one evaluation of f(λ)                                  10·nk
    rejection          one repair of multipliers                               4·58nk
    verification       the same in rational arithmetic                         30,000·nk

Factors that several tests share are charged in full to each test, so a verdict does not depend on earlier
tests.
"""

from __future__ import annotations

from math import inf
from typing import Any

from unspool.basis.arrays import check_float

DEFAULT_BUDGET = 5e10
"""The default cost limit of one test: about a second on one core."""


def factorization_cost(rows: int, width: int) -> float:
    """A Gram matrix and its Cholesky factor."""
    return rows * width**2 / 2 + width**3 / 6


def iteration_cost(rows: int, width: int) -> float:
    """One iteration of Douglas–Rachford, for one token."""
    return 16.0 * rows * width + 80.0 * width**2


def tail_setup_cost(rows: int, width: int) -> float:
    """Fixed multipliers of tail rows."""
    return 80.0 * rows * width


def interior_point_cost(rows: int, width: int) -> float:
    """One iteration of the interior-point method."""
    return 2 * factorization_cost(rows, width) + 240.0 * rows * width


def reduction_cost(rows: int, width: int, vocabulary: int) -> float:
    """Everything around one interior-point run on a reduced set of rows."""
    return 2.0 * rows * width**2 + 50.0 * (rows + 2 * vocabulary) * width


def acceptance_cost(rows: int, width: int) -> float:
    """One evaluation of f(λ)."""
    return 10.0 * rows * width


def rejection_cost(rows: int, width: int) -> float:
    """One repair of multipliers, in four rounds."""
    return 232.0 * rows * width


def verification_cost(rows: int, width: int) -> float:
    """One verification of multipliers in rational arithmetic."""
    return 30_000.0 * rows * width


def check_budget(budget: Any) -> float:
    """The budget as a float; None means no limit."""
    if budget is None:
        return inf
    return check_float(
        "budget",
        budget,
        0,
        inf,
        f"a positive number of operations ({DEFAULT_BUDGET:g} is about 1 s) or None",
    )
