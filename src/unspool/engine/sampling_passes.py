"""One pass each over the tokens of a row: its best score, a temperature, the weights and their sums.

    w_i = e^(s_i − max s),   Z = Σ w_i,   m = Σ w_i (max s − s_i) / Z       so that  H = log Z + m

Every w is right to ROUNDING of itself; sums are made in double precision.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from unspool.engine.kernel import NOUGHT, kernel, small_kernel
from unspool.engine.memory import Numbers, lent
from unspool.engine.simd import (
    LOWEST,
    WIDTH,
    added,
    either,
    exp,
    higher,
    highest,
    load,
    lower,
    lowest,
    nothing,
    over,
    plus,
    reaching,
    spread,
    store,
    summed,
    times,
    total,
)

STRIDE = 2 * WIDTH
BLOCK = 256
"""Tokens whose weights are added up together."""
BINS = 1024
LINE = 16
"""Numbers in a line of the cache: two threads write to different ones."""


class Scratch(NamedTuple):
    """Arrays as long as the vocabulary, but for the last two.

    Where a thread writes while it works on a row: the tokens still in question, and what is known of them.

    A list of W tokens lies at the beginning of each array, in the order of the vocabulary, and is filled up
    to a multiple of STRIDE with tokens of score −∞ and weight 0, so that no loop has a remainder.
    """

    score: Any
    weight: Any
    """Probabilities up to a factor of the row."""
    token: Any
    key: Any
    """What a rule ranks by, where that is not the score."""
    near_key: Any
    near_weight: Any
    """The tokens among which an edge is looked for; these two are reordered."""
    mass: Any
    """The weight of every block of the list."""
    bins: Any


@small_kernel
def filled(size: int) -> int:
    """The size with what fills it up."""
    return (size + STRIDE - 1) // STRIDE * STRIDE


def rooms(threads: int, vocabulary: int) -> Numbers:
    """Memory for as many scratches, a row each."""
    size = -(-vocabulary // STRIDE) * STRIDE
    doubles = size // BLOCK + 1 + BINS + 1
    return lent(threads, -(-(6 * size + 2 * doubles) // LINE) * LINE)


@kernel
def scratch(memory: Any, vocabulary: int) -> Scratch:
    """The scratch that lies in a row of `rooms`."""
    size = filled(vocabulary)
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
def fill(room: Scratch, size: int) -> None:
    """Fill a list up."""
    for i in range(size, filled(size)):
        room.score[i] = -np.inf
        room.weight[i] = 0
        room.token[i] = 0


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


# What a cut leaves: the tokens whose key reaches a floor.
#
# Where many are left, the others are marked (score −∞, weight 0), WIDTH at a time; where few are, these are
# moved together. Either way they stay in the order of the vocabulary, so that the same roll of the dice finds
# the same token.


SHORTER = 16
"""Tokens are moved together when they become this many times fewer."""


@kernel
def count(key: Any, floor: Any, size: int) -> Any:
    """How many tokens reach the floor."""
    least, one, zero = spread(floor), spread(np.float32(1)), spread(np.float32(0))
    counts = nothing()
    for i in range(0, filled(size), WIDTH):
        counts = added(counts, either(load(key, i), least, one, zero))
    return np.int64(summed(counts))


@kernel
def mark(key: Any, floor: Any, score: Any, size: int, room: Scratch) -> Any:
    """Cut every token below the floor where it stands; the lowest score of the others."""
    least, gone, zero = spread(floor), spread(np.float32(-np.inf)), spread(np.float32(0))
    top = spread(np.float32(np.inf))
    low = top
    for i in range(0, filled(size), WIDTH):
        k, s = load(key, i), load(score, i)
        low = lower(either(k, least, s, top), low)
        store(room.weight, i, either(k, least, load(room.weight, i), zero))
        store(room.score, i, either(k, least, s, gone))
    return -highest(times(low, spread(np.float32(-1))))


@kernel
def move(key: Any, floor: Any, ties: int, score: Any, size: int, whole: bool, room: Scratch) -> Any:
    """Move what reaches the floor together; of the tokens exactly there, the first `ties` stay.

    How many that are, and the lowest of their scores. Where the row is still whole, a place in it is the
    token's id.
    """
    floor_lanes, least, kept = spread(floor), np.float32(np.inf), NOUGHT
    for i in range(0, filled(size), WIDTH):
        bits = reaching(load(key, i), floor_lanes)
        while bits:
            at = i + lowest(bits)
            bits &= bits - 1
            if key[at] == floor:
                if ties == 0:
                    continue
                ties -= 1
            s = score[at]
            room.score[kept], room.weight[kept] = s, room.weight[at]
            room.token[kept] = at if whole else room.token[at]
            least = min(least, s)
            kept += 1
    fill(room, kept)
    return kept, least


@kernel
def keep(key: Any, floor: Any, surplus: int, score: Any, size: int, whole: bool, room: Scratch) -> Any:
    """What reaches the floor, but for the last `surplus` of the tokens exactly there.

    The size of the list, whether a place in it still is the token's id, and the lowest score that stays.
    """
    kept = count(key, floor, size)
    if surplus == 0 and kept * SHORTER > size:
        return size, whole, mark(key, floor, score, size, room)
    ties = kept - surplus
    if surplus:
        ties = -surplus
        for i in range(size):
            ties += key[i] == floor
    moved, least = move(key, floor, ties, score, size, whole, room)
    return moved, False, least


NONE = np.float64(0)
ABOVE, LEAST = np.float32(2.0**-22), np.float32(2.0**-120)
"""What is added to a number in single precision to have one above it: a part of it, and what zero needs."""
SHORT = 256
"""Lists up to this length are parted at once."""


class Edge(NamedTuple):
    """Where a mass is reached.

    The key at which a mass is reached, found without sorting.

        edge = max { key(x) : Σ_{key(y) ≥ key(x)} w(y) ≥ mass }

    The weights of 1,024 equal intervals between the highest key and a floor below the edge are summed; the
    edge lies in the interval where their cumulative sum reaches the mass. Only the tokens of that interval
    are parted, again and again, into those above one of them, those that tie with it and those below.
    """

    key: Any
    before: float
    """The weight of the tokens with a higher key."""
    here: float
    """The weight of the tokens that have this key."""
    ties: int
    """How many these are."""


@kernel
def part(key: Any, weight: Any, size: int, before: float, mass: float) -> Edge:
    """The edge among the tokens given, whose order changes; `before` is the weight of all above them."""
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
            return Edge(pivot, before + above, here, here_end - above_end)
        else:
            before += above + here
            low = below


@kernel
def mass_edge(key: Any, weight: Any, size: int, top: float, floor: Any, mass: float, room: Scratch) -> Edge:
    """The edge of a list: no key is above the top, and the mass is reached at the floor or above."""
    floor_lanes = spread(floor)
    if size <= SHORT:
        count = NOUGHT
        for i in range(size):
            if key[i] >= floor:
                room.near_key[count], room.near_weight[count] = key[i], weight[i]
                count += 1
        return part(room.near_key, room.near_weight, count, NONE, mass)
    per_unit = BINS / max(top - np.float64(floor), 1e-30)
    for b in range(BINS + 1):
        room.bins[b] = 0
    for i in range(0, filled(size), WIDTH):
        bits = reaching(load(key, i), floor_lanes)
        while bits:
            at = i + lowest(bits)
            bits &= bits - 1
            room.bins[min(BINS, int((top - key[at]) * per_unit))] += weight[at]
    before, here, last = 0.0, 0, 0
    while here < BINS and before + room.bins[here] < mass:
        if room.bins[here] > 0:
            last = here
        before += room.bins[here]
        here += 1
    if room.bins[here] == 0:  # rounding left the mass out of reach: what comes last
        here = last
        before -= room.bins[here]
    # The interval, and half of one on either side for what is rounded here; the test below is exact. Where
    # keys are so near each other that this half is lost in the rounding, the next number above is not.
    low = np.float32(max(np.float64(floor), top - (here + 1.5) / per_unit))
    high = np.float32(top - (here - 0.5) / per_unit)
    high += abs(high) * ABOVE + LEAST
    low_lanes, high_lanes = spread(low), spread(high)
    count = NOUGHT
    for i in range(0, filled(size), WIDTH):
        x = load(key, i)
        bits = reaching(x, low_lanes) & ~reaching(x, high_lanes)
        while bits:
            at = i + lowest(bits)
            bits &= bits - 1
            if min(BINS, int((top - key[at]) * per_unit)) == here:
                room.near_key[count], room.near_weight[count] = key[at], weight[at]
                count += 1
    return part(room.near_key, room.near_weight, count, before, mass)
