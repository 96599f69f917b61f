"""The columns of W in units that float64 can work with: the same question, other numbers.

    W̃ᵀp = W̃ᵀp̂   ⇔   (W̃T)ᵀp = (W̃T)ᵀp̂   for any T that can be inverted; W̃ = [W, 1]

So a column may be scaled, and, since the ones are there, shifted. Both are done only where nothing is rounded
and where it matters: columns whose squares would overflow or underflow are multiplied by powers of two; from
a column whose entries are all within a factor of two, and hardly vary, its smallest entry is taken off.

A column that others make up to 10⁻¹⁰ of its size is left out: float64 cannot tell what it adds. If it is made
up exactly (a zero, a duplicate, a constant), the question is the same; if not, it asks for less, and what is
accepted is accepted rightly.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.float64_rows import Float64Rows

# Mean squares beyond these are on their way out of float64.
SMALL, LARGE = 1e-200, 1e200
# A column with less variance than this, relative to its mean square, is worth a shift.
STEADY = 1e-6


def in_fair_units(weight: Float64Rows, square_D: Array, mean_D: Array) -> Float64Rows | None:
    """The columns scaled and shifted, None where none has to be; from their mean squares and means.

    NaN or infinite entries are refused.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        variance_D = square_D - mean_D * mean_D
        fair_D = (square_D > SMALL) & (square_D < LARGE)
        steady_D = fair_D & (variance_D < STEADY * square_D)
    if (fair_D & ~steady_D).all():
        return None
    low_D, high_D = _extent(weight)
    size_D = np.maximum(np.abs(low_D), np.abs(high_D))
    power_D = np.where(~fair_D & (size_D > 0), np.frexp(size_D)[1], 0)
    # Between x and 2x, x − y is a number of float64's.
    near_D = np.minimum(np.abs(low_D), np.abs(high_D)) * 2 >= size_D
    one_sign_D = np.sign(low_D) == np.sign(high_D)
    shift_D = np.where(steady_D & near_D & one_sign_D & (low_D < high_D), low_D, 0.0)
    if not (power_D.any() or shift_D.any()):
        return None
    fair_VD = np.empty(weight.shape)
    for part, block in weight.blocks():
        fair_VD[part] = np.ldexp(block - shift_D, -power_D)
    return Float64Rows(fair_VD)


def scaled_alike(weight: Float64Rows, square: float) -> Float64Rows | None:
    """All columns times one power of two, None where that is not needed; from their largest mean square."""
    if SMALL < square < LARGE:
        return None
    low_D, high_D = _extent(weight)
    power = int(np.frexp(max(np.abs(low_D).max(initial=0), np.abs(high_D).max(initial=0)))[1])
    if not power:
        return None
    fair_VD = np.empty(weight.shape)
    for part, block in weight.blocks():
        fair_VD[part] = np.ldexp(block, -power)
    return Float64Rows(fair_VD)


def made_up_by_others(null_MD: Array) -> Indices:
    """Columns that the others make up, one for each vector n with W̃n = 0; the ones are never among them."""
    order_M = qr(null_MD[:-1].T, mode="r", pivoting=True)[1]
    return np.sort(order_M[: null_MD.shape[1]])


def _extent(weight: Float64Rows) -> tuple[Array, Array]:
    """The smallest and the largest entry of each column."""
    low_D, high_D = np.full(weight.shape[1], np.inf), np.full(weight.shape[1], -np.inf)
    for _, block in weight.blocks():
        if not np.isfinite(block).all():
            raise ValueError("W contains NaN or infinite entries; no test is possible on it.")
        low_D, high_D = np.minimum(low_D, block.min(axis=0)), np.maximum(high_D, block.max(axis=0))
    return low_D, high_D
