"""Passes over the tokens of a row for compiled sampling: maximum, temperature, weights, sums, truncation.

    w_i = e^(s_i − b),   Z = Σ w_i,   m = Σ w_i (b − s_i) / Z       so that  H = log Z + m

with b the base, usually max s. Weights are float32, sums float64.

Rounding bound: the relative error of every w is at most ROUNDING_BOUND. Everything else that is rounded is
bounded by multiples of it (`truncation`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from unspool.engine.kernel import INT64_ZERO, inline_kernel, kernel
from unspool.engine.memory import Floats, empty_pooled
from unspool.engine.simd import (
    MIN_EXPONENT,
    WIDTH,
    add_to_sums,
    ge_mask,
    load,
    lowest_bit,
    select_ge,
    splat,
    store,
    total_of_sums,
    vadd,
    vdiv,
    vexp,
    vmax,
    vmax_element,
    vmin,
    vmul,
    vsum,
    zero_sums,
)

LIST_MULTIPLE = 2 * WIDTH
BLOCK = 256
"""Tokens whose weights are summed as one mass."""
BINS = 1024
CACHE_LINE_FLOATS = 16
"""Floats in a cache line: two threads write to different lines."""


class Scratch(NamedTuple):
    """A thread's working memory for one row: the list of remaining tokens.

    The list is at the start of the arrays, in the order of the vocabulary, and padded to a multiple of
    LIST_MULTIPLE with tokens of score −∞ and weight 0, so that loops need not handle a remainder. All arrays
    but the last two are as long as the vocabulary.
    """

    score: Any
    weight: Any
    """Unnormalised probabilities w."""
    token: Any
    key: Any
    """The ranking key of a rule, if that is not the score."""
    near_key: Any
    near_weight: Any
    """Keys and weights among which `select_edge` searches; it reorders them."""
    mass: Any
    """The mass of every block of the list."""
    bins: Any


@inline_kernel
def padded_size(size: int) -> int:
    """The size of a list including its padding."""
    return (size + LIST_MULTIPLE - 1) // LIST_MULTIPLE * LIST_MULTIPLE


def scratch_memory(threads: int, vocabulary: int) -> Floats:
    """Memory for the `Scratch` of every thread, one row each."""
    size = -(-vocabulary // LIST_MULTIPLE) * LIST_MULTIPLE
    doubles = size // BLOCK + 1 + BINS + 1
    return empty_pooled(threads, -(-(6 * size + 2 * doubles) // CACHE_LINE_FLOATS) * CACHE_LINE_FLOATS)


@kernel
def scratch_view(memory: Any, vocabulary: int) -> Scratch:
    """The `Scratch` in a row of `scratch_memory`."""
    size = padded_size(vocabulary)
    doubles = memory[6 * size : memory.size // 2 * 2].view(np.float64)
    blocks = size // BLOCK + 1
    return Scratch(
        memory[:size],
        memory[size : 2 * size],
        memory[2 * size : 3 * size].view(np.int32),
        memory[3 * size : 4 * size],
        memory[4 * size : 5 * size],
        memory[5 * size : 6 * size],
        doubles[:blocks],
        doubles[blocks : blocks + BINS + 1],
    )


@kernel
def pad_list(scratch: Scratch, size: int) -> None:
    """Pad a list."""
    for i in range(size, padded_size(size)):
        scratch.score[i] = -np.inf
        scratch.weight[i] = 0
        scratch.token[i] = 0


ROUNDING_BOUND = 1.2e-7
"""Relative error of a weight, at most; that of `vexp` is 0.84e-7 over all float32."""
MEAN_BOUND = 3 * ROUNDING_BOUND
"""Relative error of m: two weights (its own and Z's), a difference and a product."""
DEVIATION_BOUND = 3 * ROUNDING_BOUND
"""Relative error of a standard deviation."""


@kernel
def best_score(score: Any, size: int) -> Any:
    """The best score; NaN if a score is NaN."""
    end = padded_size(size)
    even = end // (2 * LIST_MULTIPLE) * 2 * LIST_MULTIPLE
    best, other = splat(np.float32(-np.inf)), splat(np.float32(-np.inf))
    sums = splat(np.float32(0))  # NaN if a score is; −∞ if tokens were cut
    for i in range(0, even, 2 * LIST_MULTIPLE):  # each addition to the sums waits for the one before it
        x, y = load(score, i), load(score, i + WIDTH)
        z, w = load(score, i + 2 * WIDTH), load(score, i + 3 * WIDTH)
        best, other = vmax(vmax(x, y), best), vmax(vmax(z, w), other)
        sums = vadd(sums, vadd(vadd(x, y), vadd(z, w)))
    for i in range(even, end, LIST_MULTIPLE):
        x, y = load(score, i), load(score, i + WIDTH)
        best, other, sums = vmax(x, best), vmax(y, other), vadd(sums, vadd(x, y))
    return np.float32(np.nan) if np.isnan(vsum(sums)) else vmax_element(vmax(best, other))


@kernel
def divide_by_temperature(score: Any, size: int, peak: Any, temperature: Any, out: Any) -> None:
    """out = (s − max s) / T."""
    shift, divisor = splat(-peak), splat(temperature)
    for i in range(0, padded_size(size), WIDTH):
        store(out, i, vdiv(vadd(load(score, i), shift), divisor))


class Normaliser(NamedTuple):
    """Base and sum of a list's weights."""

    base: float
    """b, the score of weight 1."""
    total: float
    """Z."""


@kernel
def compute_weights(score: Any, size: int, peak: Any, scratch: Scratch) -> float:
    """Compute the weight of every token (0 below e^−87) and the mass of every block; returns Z."""
    shift, least, zero = splat(-peak), splat(MIN_EXPONENT), splat(np.float32(0))
    for i in range(0, padded_size(size), WIDTH):
        x = vadd(load(score, i), shift)
        store(scratch.weight, i, select_ge(x, least, vexp(x), zero))
    return sum_weights(size, scratch)


@kernel
def sum_weights(size: int, scratch: Scratch) -> float:
    """Sum the weights of a list and of every block; returns Z."""
    total = 0.0
    for start in range(0, padded_size(size), BLOCK):
        sums, others = zero_sums(), zero_sums()
        for i in range(start, min(start + BLOCK, padded_size(size)), LIST_MULTIPLE):
            sums = add_to_sums(sums, load(scratch.weight, i))
            others = add_to_sums(others, load(scratch.weight, i + WIDTH))
        mass = total_of_sums(sums) + total_of_sums(others)
        scratch.mass[start // BLOCK] = mass
        total += mass
    return total


@kernel
def mean_below(score: Any, size: int, base: Any, total: float, scratch: Scratch) -> Any:
    """m, the mean of b − s."""
    shift, least = splat(-base), splat(MIN_EXPONENT)
    sums, others = zero_sums(), zero_sums()
    for i in range(0, padded_size(size), LIST_MULTIPLE):
        x, y = vadd(load(score, i), shift), vadd(load(score, i + WIDTH), shift)
        v = vmul(load(scratch.weight, i), vmax(x, least))
        w = vmul(load(scratch.weight, i + WIDTH), vmax(y, least))
        sums, others = add_to_sums(sums, v), add_to_sums(others, w)
    return -(total_of_sums(sums) + total_of_sums(others)) / total


@kernel
def exact_mean_below(score: Any, size: int, base: Any) -> float:
    """m in float64, which takes twenty times as long."""
    sums = total = 0.0
    for i in range(size):
        below = np.float64(np.float32(score[i] - base))
        if below > -np.inf:
            weight = math.exp(below)
            sums += weight * below
            total += weight
    return -sums / total


@kernel
def exact_masses(score: Any, key: Any, size: int, edge: Any, base: float) -> Any:
    """In float64: the weight of the tokens above the edge, at the edge, and of all."""
    above = here = total = 0.0
    for i in range(size):
        weight = math.exp(np.float64(np.float32(score[i] - np.float32(base))))
        total += weight
        if key[i] > edge:
            above += weight
        elif key[i] == edge:
            here += weight
    return above, here, total


@kernel
def deviation(score: Any, size: int, peak: Any) -> Any:
    """The standard deviation of the remaining scores, and its rounding bound."""
    alive, shift, one, zero = splat(MIN_SCORE), splat(-peak), splat(np.float32(1)), splat(np.float32(0))
    sums, counts = zero_sums(), zero_sums()
    for i in range(0, padded_size(size), WIDTH):
        x = load(score, i)
        sums = add_to_sums(sums, select_ge(x, alive, vadd(x, shift), zero))
        counts = add_to_sums(counts, select_ge(x, alive, one, zero))
    count = total_of_sums(counts)
    mean = total_of_sums(sums) / count
    middle, squares = splat(np.float32(mean)), zero_sums()
    back = splat(np.float32(-1))
    for i in range(0, padded_size(size), WIDTH):
        x = load(score, i)
        off = vadd(vadd(x, shift), vmul(middle, back))
        squares = add_to_sums(squares, select_ge(x, alive, vmul(off, off), zero))
    sigma = np.sqrt(max(0.0, total_of_sums(squares) / count))
    return sigma, DEVIATION_BOUND * (abs(mean) + 2 * sigma)


MIN_SCORE = np.finfo(np.float32).min
"""The lowest score of a token that is not cut."""


# Truncation: keep the tokens whose key reaches a floor. If many remain, the others are masked (score −∞,
# weight 0); if few remain, they are moved together. Both keep the order of the vocabulary, so that the same
# random number draws the same token.


COMPACT_FACTOR = 16
"""Tokens are moved together if this many times fewer remain."""


@kernel
def count_reaching(key: Any, floor: Any, size: int) -> Any:
    """The number of tokens that reach the floor."""
    least, one, zero = splat(floor), splat(np.float32(1)), splat(np.float32(0))
    counts = zero_sums()
    for i in range(0, padded_size(size), WIDTH):
        counts = add_to_sums(counts, select_ge(load(key, i), least, one, zero))
    return np.int64(total_of_sums(counts))


@kernel
def mask_below(key: Any, floor: Any, score: Any, size: int, scratch: Scratch) -> Any:
    """Mask every token below the floor in place; the lowest score of the others."""
    least, cut, zero = splat(floor), splat(np.float32(-np.inf)), splat(np.float32(0))
    top = splat(np.float32(np.inf))
    low = top
    for i in range(0, padded_size(size), WIDTH):
        k, s = load(key, i), load(score, i)
        low = vmin(select_ge(k, least, s, top), low)
        store(scratch.weight, i, select_ge(k, least, load(scratch.weight, i), zero))
        store(scratch.score, i, select_ge(k, least, s, cut))
    return -vmax_element(vmul(low, splat(np.float32(-1))))


@kernel
def compact(key: Any, floor: Any, ties: int, score: Any, size: int, is_full: bool, scratch: Scratch) -> Any:
    """Move the tokens that reach the floor together; of those exactly at the floor, keep the first `ties`.

    Returns their number and their lowest score. If `is_full`, an index in the list is a token id.
    """
    floor_vector, least, remaining = splat(floor), np.float32(np.inf), INT64_ZERO
    for i in range(0, padded_size(size), WIDTH):
        bits = ge_mask(load(key, i), floor_vector)
        while bits:
            at = i + lowest_bit(bits)
            bits &= bits - 1
            if key[at] == floor:
                if ties == 0:
                    continue
                ties -= 1
            s = score[at]
            scratch.score[remaining], scratch.weight[remaining] = s, scratch.weight[at]
            scratch.token[remaining] = at if is_full else scratch.token[at]
            least = min(least, s)
            remaining += 1
    pad_list(scratch, remaining)
    return remaining, least


@kernel
def truncate_below(
    key: Any, floor: Any, surplus: int, score: Any, size: int, is_full: bool, scratch: Scratch
) -> Any:
    """Keep the tokens that reach the floor, except the last `surplus` of those exactly at the floor.

    Returns the size of the list, whether it is still full (an index is a token id), and its lowest score.
    """
    remaining = count_reaching(key, floor, size)
    if surplus == 0 and remaining * COMPACT_FACTOR > size:
        return size, is_full, mask_below(key, floor, score, size, scratch)
    ties = remaining  # without a surplus, `compact` keeps all of them
    if surplus:
        ties = -surplus
        for i in range(size):
            ties += key[i] == floor
    moved, least = compact(key, floor, ties, score, size, is_full, scratch)
    return moved, False, least


FLOAT64_ZERO = np.float64(0)
NEXT_FLOAT_FACTOR, NEXT_FLOAT_MIN = np.float32(2.0**-22), np.float32(2.0**-120)
"""x + |x| · NEXT_FLOAT_FACTOR + NEXT_FLOAT_MIN is a float32 above x."""
MAX_QUICKSELECT = 256
"""Lists up to this length skip the bins."""


class MassEdge(NamedTuple):
    """The key at which a mass is reached, found without sorting:

        edge = max { key(x) : Σ_{key(y) ≥ key(x)} w(y) ≥ mass }

    A histogram of the weights in 1,024 bins between the highest key and a floor below the edge gives the bin
    that contains the edge. Quickselect among the tokens of that bin finds the edge.
    """

    key: Any
    before: float
    """The weight of the tokens with a higher key."""
    here: float
    """The weight of the tokens with this key."""
    ties: int
    """The number of tokens with this key."""


@kernel
def select_edge(key: Any, weight: Any, size: int, before: float, mass: float) -> MassEdge:
    """Quickselect: the edge among tokens, which are reordered; `before` is the weight of all above them."""
    low, high = 0, size
    while True:
        a, b, c = key[low], key[(low + high) // 2], key[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        above_end, here_end, below = low, low, high
        above = here = 0.0
        while here_end < below:
            k, w = key[here_end], weight[here_end]
            if k > pivot:
                key[here_end], weight[here_end] = key[above_end], weight[above_end]
                key[above_end], weight[above_end] = k, w
                above += w
                above_end += 1
                here_end += 1
            elif k == pivot:
                here += w
                here_end += 1
            else:
                below -= 1
                key[here_end], weight[here_end] = key[below], weight[below]
                key[below], weight[below] = k, w
        if above_end > low and before + above >= mass:
            high = above_end
        elif before + above + here >= mass or below == high:
            return MassEdge(pivot, before + above, here, here_end - above_end)
        else:
            before += above + here
            low = below


@kernel
def mass_edge(
    key: Any, weight: Any, size: int, top: float, floor: Any, mass: float, scratch: Scratch
) -> MassEdge:
    """The edge of a list whose keys are at most `top` and whose mass is reached at the floor or above."""
    floor_vector = splat(floor)
    if size <= MAX_QUICKSELECT:
        count = INT64_ZERO
        for i in range(size):
            if key[i] >= floor:
                scratch.near_key[count], scratch.near_weight[count] = key[i], weight[i]
                count += 1
        return select_edge(scratch.near_key, scratch.near_weight, count, FLOAT64_ZERO, mass)
    per_unit = BINS / max(top - np.float64(floor), 1e-30)
    for b in range(BINS + 1):
        scratch.bins[b] = 0
    for i in range(0, padded_size(size), WIDTH):
        bits = ge_mask(load(key, i), floor_vector)
        while bits:
            at = i + lowest_bit(bits)
            bits &= bits - 1
            scratch.bins[min(BINS, int((top - key[at]) * per_unit))] += weight[at]
    before, here, last = 0.0, 0, 0
    while here < BINS and before + scratch.bins[here] < mass:
        if scratch.bins[here] > 0:
            last = here
        before += scratch.bins[here]
        here += 1
    if scratch.bins[here] == 0:  # because of rounding the mass was not reached: the last bin
        here = last
        before -= scratch.bins[here]
    # The bin and half a bin on either side, because these bounds are rounded; the test below is exact. If
    # keys are so close that half a bin is lost in rounding, the next float above is not.
    low = np.float32(max(np.float64(floor), top - (here + 1.5) / per_unit))
    high = np.float32(top - (here - 0.5) / per_unit)
    high += abs(high) * NEXT_FLOAT_FACTOR + NEXT_FLOAT_MIN
    low_vector, high_vector = splat(low), splat(high)
    count = INT64_ZERO
    for i in range(0, padded_size(size), WIDTH):
        x = load(key, i)
        bits = ge_mask(x, low_vector) & ~ge_mask(x, high_vector)
        while bits:
            at = i + lowest_bit(bits)
            bits &= bits - 1
            if min(BINS, int((top - key[at]) * per_unit)) == here:
                scratch.near_key[count], scratch.near_weight[count] = key[at], weight[at]
                count += 1
    return select_edge(scratch.near_key, scratch.near_weight, count, before, mass)
