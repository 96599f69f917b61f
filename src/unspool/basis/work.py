"""The cost of a test, counted in multiplications instead of seconds, so that verdicts agree on every machine.

The unit is one multiplication in a product of large float32 matrices. Other operations count more, by
rounded ratios of times on one core: 2 in float64, 8 (float32) or 16 (float64) in a matrix–vector product,
50 if rows of W are converted to float64, 80 in a triangular solve, 30,000 in rational arithmetic. `n` is the
number of rows and `k` = rank + 1 the number of unknowns.

Factors that several tests share are charged in full to each test, so a verdict does not depend on earlier
tests.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

DEFAULT_BUDGET = 5e10
"""The default cost limit of one test: about a second on one core."""


def one_blas_thread() -> Any:
    """A context with one thread for numpy: beside torch's threads, several make products this small slow."""
    return _thread_pools().limit(limits=1)


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def factorization_cost(n: int, k: int) -> float:
    """A Gram matrix and its Cholesky factor."""
    return n * k**2 / 2 + k**3 / 6


def iteration_cost(n: int, k: int) -> float:
    """One iteration of Douglas–Rachford, for one token: 8·2nk + 80·k²."""
    return 16.0 * n * k + 80.0 * k**2


def tail_setup_cost(n: int, k: int) -> float:
    """Fixed multipliers of tail rows."""
    return 80.0 * n * k


def interior_point_cost(n: int, k: int) -> float:
    """One iteration of the interior-point method: a factor in float64 and 15 products."""
    return 2 * factorization_cost(n, k) + 16.0 * 15 * n * k


def reduction_cost(n: int, k: int, vocabulary: int) -> float:
    """Fixing all but n rows of the vocabulary for the interior-point method."""
    return 2.0 * n * k**2 + 50.0 * (n + 2 * vocabulary) * k


def acceptance_cost(n: int, k: int) -> float:
    """One evaluation of f(λ)."""
    return 10.0 * n * k


def rejection_cost(n: int, k: int) -> float:
    """One repair of multipliers, in four rounds."""
    return 4.0 * 58 * n * k


def verification_cost(n: int, k: int) -> float:
    """One verification of multipliers in rational arithmetic."""
    return 30_000.0 * n * k
