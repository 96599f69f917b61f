"""e^x of many numbers at once, and what activations make of it.

    e^x = 2^n · e^r,   n = round(x / ln 2),   r = x − n ln 2,   |r| ≤ ln 2 / 2

e^r is a polynomial of degree 6, and ln 2 comes in two parts so that r loses nothing (Cephes' `expf`): right
to about one unit in the last place. Below −87 it stays at e^−87, above 88 at e^88; NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import fma, higher, lower, nearest, over, plus, spread, times, two_to_the

LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)
PER_LN2 = np.float32(1.44269504088896341)
LN2_HIGH, LN2_LOW = np.float32(-0.693359375), np.float32(2.12194440e-4)
C = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0e-1)
)
ONE = np.float32(1)


@kernel
def exp(x: Any) -> Any:
    """e^x."""
    x = lower(spread(HIGHEST), higher(spread(LOWEST), x))
    n = nearest(times(x, spread(PER_LN2)))
    r = fma(n, spread(LN2_LOW), fma(n, spread(LN2_HIGH), x))
    p = fma(spread(C[0]), r, spread(C[1]))
    p = fma(p, r, spread(C[2]))
    p = fma(p, r, spread(C[3]))
    p = fma(p, r, spread(C[4]))
    p = fma(p, r, spread(C[5]))
    p = plus(fma(p, times(r, r), r), spread(ONE))
    return times(p, two_to_the(n))


@kernel
def tanh(x: Any) -> Any:
    """(e^2x − 1) / (e^2x + 1), as 1 − 2 / (e^2x + 1): right to about 1e-7, absolutely."""
    grown = plus(exp(plus(x, x)), spread(ONE))
    return plus(spread(ONE), over(spread(np.float32(-2)), grown))


@kernel
def sigmoid_times(x: Any, slope: Any) -> Any:
    """x / (1 + e^−slope): silu where slope is x."""
    return over(x, plus(spread(ONE), exp(times(slope, spread(-ONE)))))
