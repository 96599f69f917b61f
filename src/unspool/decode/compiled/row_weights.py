"""One pass each over the tokens of a row: its best score, a temperature, the weights and their sums.

    w_i = e^(s_i − max s),   Z = Σ w_i,   m = Σ w_i (max s − s_i) / Z       so that  H = log Z + m

Every w is right to ROUNDING of itself; sums are made in double precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.decode.compiled.row_scratch import BLOCK, STRIDE, Scratch, filled
from unspool.kernels.choices import either
from unspool.kernels.doubles import added, nothing, summed
from unspool.kernels.exponential import LOWEST, exp
from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, higher, highest, load, over, plus, spread, store, times, total

MOMENTS = 3e-7
"""Of the parts of a difference in single precision."""
ROUNDING = 1.2e-7
"""Of a weight: e^x is off by 0.84e-7 of itself at most, over all numbers of single precision."""
MEAN = 3 * ROUNDING
"""Of m: two weights (its own and Z's), a difference and a product."""


@kernel
def peak_of(score: Any, size: int) -> Any:
    """The best score; NaN where a score is."""
    best, other = spread(np.float32(-np.inf)), spread(np.float32(-np.inf))
    sums = spread(np.float32(0))  # NaN if a score is, and −∞ where tokens were cut
    for i in range(0, filled(size), STRIDE):
        x, y = load(score, i), load(score, i + WIDTH)
        best, other, sums = higher(x, best), higher(y, other), plus(sums, plus(x, y))
    return np.float32(np.nan) if np.isnan(total(sums)) else highest(higher(best, other))


@kernel
def cool(score: Any, size: int, peak: Any, temperature: Any, out: Any) -> None:
    """out = (s − max s) / T."""
    shift, divisor = spread(-peak), spread(temperature)
    for i in range(0, filled(size), WIDTH):
        store(out, i, over(plus(load(score, i), shift), divisor))


@kernel
def weigh(score: Any, size: int, peak: Any, room: Scratch) -> float:
    """The weight of every token, of every block and, returned, of all: 0 for what is below e^−87."""
    shift, least, zero = spread(-peak), spread(LOWEST), spread(np.float32(0))
    whole = 0.0
    for start in range(0, filled(size), BLOCK):
        sums, others = nothing(), nothing()
        for i in range(start, min(start + BLOCK, filled(size)), STRIDE):
            x, y = plus(load(score, i), shift), plus(load(score, i + WIDTH), shift)
            v, w = either(x, least, exp(x), zero), either(y, least, exp(y), zero)
            store(room.weight, i, v)
            store(room.weight, i + WIDTH, w)
            sums, others = added(sums, v), added(others, w)
        mass = summed(sums) + summed(others)
        room.mass[start // BLOCK] = mass
        whole += mass
    return whole


@kernel
def weigh_blocks(score: Any, size: int, peak: Any, room: Scratch) -> float:
    """The weight of every block and, returned, of all; tokens are not told theirs."""
    shift, least, zero = spread(-peak), spread(LOWEST), spread(np.float32(0))
    whole = 0.0
    for start in range(0, filled(size), BLOCK):
        sums, others = nothing(), nothing()
        for i in range(start, min(start + BLOCK, filled(size)), STRIDE):
            x, y = plus(load(score, i), shift), plus(load(score, i + WIDTH), shift)
            sums = added(sums, either(x, least, exp(x), zero))
            others = added(others, either(y, least, exp(y), zero))
        mass = summed(sums) + summed(others)
        room.mass[start // BLOCK] = mass
        whole += mass
    return whole


@kernel
def weigh_block(score: Any, size: int, peak: Any, block: int, room: Scratch) -> None:
    """The weight of every token of one block."""
    shift, least, zero = spread(-peak), spread(LOWEST), spread(np.float32(0))
    for i in range(block * BLOCK, min((block + 1) * BLOCK, filled(size)), WIDTH):
        x = plus(load(score, i), shift)
        store(room.weight, i, either(x, least, exp(x), zero))


@kernel
def weigh_again(size: int, room: Scratch) -> float:
    """The same for weights that are known, of a list that has become shorter."""
    whole = 0.0
    for start in range(0, filled(size), BLOCK):
        sums, others = nothing(), nothing()
        for i in range(start, min(start + BLOCK, filled(size)), STRIDE):
            sums, others = added(sums, load(room.weight, i)), added(others, load(room.weight, i + WIDTH))
        mass = summed(sums) + summed(others)
        room.mass[start // BLOCK] = mass
        whole += mass
    return whole


@kernel
def mean_below(score: Any, size: int, base: Any, whole: float, room: Scratch) -> Any:
    """m: how far below the base, at which tokens weigh 1, a token lies on average."""
    shift, least = spread(-base), spread(LOWEST)
    sums, others = nothing(), nothing()
    for i in range(0, filled(size), STRIDE):
        x, y = plus(load(score, i), shift), plus(load(score, i + WIDTH), shift)
        v = times(load(room.weight, i), higher(x, least))
        w = times(load(room.weight, i + WIDTH), higher(y, least))
        sums, others = added(sums, v), added(others, w)
    return -(summed(sums) + summed(others)) / whole


@kernel
def exact_mean_below(score: Any, size: int, base: Any) -> float:
    """The same in double precision throughout, which takes twenty times as long."""
    sums = whole = 0.0
    for i in range(size):
        below = np.float64(np.float32(score[i] - base))
        if below > -np.inf:
            weight = math.exp(below)
            sums += weight * below
            whole += weight
    return -sums / whole


@kernel
def deviation(score: Any, size: int, peak: Any) -> Any:
    """The standard deviation of the scores over the tokens that are left, and by how much it may be off."""
    alive, shift, one, zero = spread(ALIVE), spread(-peak), spread(np.float32(1)), spread(np.float32(0))
    sums, counts = nothing(), nothing()
    for i in range(0, filled(size), WIDTH):
        x = load(score, i)
        sums = added(sums, either(x, alive, plus(x, shift), zero))
        counts = added(counts, either(x, alive, one, zero))
    count = summed(counts)
    mean = summed(sums) / count
    middle, squares = spread(np.float32(mean)), nothing()
    back = spread(np.float32(-1))
    for i in range(0, filled(size), WIDTH):
        x = load(score, i)
        off = plus(plus(x, shift), times(middle, back))
        squares = added(squares, either(x, alive, times(off, off), zero))
    sigma = np.sqrt(max(0.0, summed(squares) / count))
    return sigma, MOMENTS * (abs(mean) + 2 * sigma)


ALIVE = np.finfo(np.float32).min
"""The lowest score of a token that was not cut."""
