"""What a test may cost: work, counted in multiplications and not in seconds, so that every machine agrees.

The unit is one multiplication in a product of large matrices in float32. Others take longer and count more:
in float64 two, in a product with a vector 8 (float32) or 16 (float64), where rows of W are converted to
float64 on the way 50, in a triangular solve 80, in rational arithmetic 30,000: ratios of times on one core,
rounded. n are rows and k the unknowns, rank + 1.

    factorising    a Gram matrix of n rows and its Cholesky factor        n·k²/2 + k³/6
    iterating      the splitting method, once                             8·2nk + 80·k²
    setting        n rows beside a head to where they stand               80·nk
    solving        the interior-point method, once                        2·(n·k²/2 + k³/6) + 16·15nk
    settling       all but n rows of V, for the interior-point method     2·n·k² + 50·(n + 2V)·k
    accepting      λ evaluated                                            10·nk
    rejecting      multipliers made exact                                 4·58nk
    verifying      the same in rational arithmetic                        30,000·nk

What several tests on one distribution share is counted in full for each of them: a verdict does not depend on
what was made before.
"""

from __future__ import annotations

from math import inf
from typing import Any

from unspool.basis.arrays import real, shown

BUDGET = 5e10
"""What one test may cost unless it is said otherwise: about a second of one core."""


def factorising(rows: int, width: int) -> float:
    """A Gram matrix and its Cholesky factor."""
    return rows * width**2 / 2 + width**3 / 6


def iterating(rows: int, width: int) -> float:
    """One iteration of Douglas–Rachford, for one token."""
    return 16.0 * rows * width + 80.0 * width**2


def setting(rows: int, width: int) -> float:
    """Rows beside a head, put where an earlier search has left them."""
    return 80.0 * rows * width


def solving(rows: int, width: int) -> float:
    """One iteration of the interior-point method."""
    return 2 * factorising(rows, width) + 240.0 * rows * width


def settling(rows: int, width: int, vocabulary: int) -> float:
    """Everything around a run of the interior-point method on some rows."""
    return 2.0 * rows * width**2 + 50.0 * (rows + 2 * vocabulary) * width


def accepting(rows: int, width: int) -> float:
    """One λ evaluated."""
    return 10.0 * rows * width


def rejecting(rows: int, width: int) -> float:
    """Multipliers made exact, by four repairs."""
    return 232.0 * rows * width


def verifying(rows: int, width: int) -> float:
    """Multipliers verified in rational arithmetic."""
    return 30_000.0 * rows * width


def checked_budget(budget: Any) -> float:
    """The budget itself, infinite for None."""
    if budget is None:
        return inf
    found = real(budget)
    if found is None or not 0 < found < inf:
        raise (TypeError if found is None else ValueError)(
            f"budget is {shown(budget)}; it is the work that one test may cost, in multiplications, and must "
            f"be a number above 0 ({BUDGET:g} is about a second), or None for no limit."
        )
    return found
