"""The rules that rank the tokens and keep a given mass.

    top-p     key(x) = s(x)                mass p
    typical   key(x) = −|s(x) − (b − m)|   mass τ          for  −log p(x) − H = (b − m) − s(x)

Tokens of p < (1 − mass)/2W weigh less than 1 − mass all together, so that the edge is not below the key that
every other token reaches: a floor. The rules themselves, their papers and their ties are told where they are
defined, in `transforms`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.engine.kernel import NOUGHT, kernel, small_kernel
from unspool.engine.sampling_passes import ALIVE, MEAN, ROUNDING, Scratch, filled, mass_edge, part
from unspool.engine.simd import WIDTH, distance, higher, highest, load, lowest, reaching, spread, store, times

SLACK = 1e-12
"""Of a row's weight: what sums in double precision are off at most."""
KEYS = 1e-7
"""Of a key's parts: what single precision is off."""


@small_kernel
def margin(share: float) -> float:
    """By how much the share of a row's weight that some tokens have may be off: 2 · f(1 − f) · rounding."""
    return 2 * ROUNDING * share * (1 - share) + SLACK


@kernel
def negligible(base: float, whole: float, mass: float, size: int) -> float:
    """A score below which all tokens together weigh less than 1 − mass, by half for what is rounded."""
    return base + math.log(whole * (1 - mass) / (2 * size))


@kernel
def top_p(score: Any, size: int, peak: float, base: float, whole: float, p: float, room: Scratch) -> Any:
    """The edge, how many tokens exactly there are not needed, and whether rounding cannot change that."""
    mass = p * whole
    floor = np.float32(negligible(base, whole, p, size))
    edge = mass_edge(score, room.weight, size, peak, floor, mass, room)
    each = edge.here / edge.ties
    if each == 0:
        return edge.key, 0, False
    needed = min(edge.ties, max(1, math.ceil((mass - edge.before) / each)))
    off = margin(p) * whole
    upto = edge.before + needed * each
    sure = upto - mass > off and mass - (upto - each) > off
    return edge.key, edge.ties - needed, sure


@kernel
def typical(
    score: Any, size: int, centre: float, mass: float, whole: float, floor: float, room: Scratch
) -> Any:
    """The edge of `room.key`, and whether rounding cannot change what reaches it; all that tie there stay."""
    middle, back = spread(np.float32(centre)), spread(np.float32(-1))
    for i in range(0, filled(size), WIDTH):
        store(room.key, i, times(distance(load(score, i), middle), back))
    edge = mass_edge(room.key, room.weight, size, 0.0, np.float32(floor), mass * whole, room)
    off = margin(mass) * whole
    return edge.key, edge.before + off < mass * whole < edge.before + edge.here - off


@kernel
def ordered(score: Any, size: int, edge: Any, centre: float, off: float, room: Scratch) -> bool:
    """Whether the tokens that reach the edge are the nearer ones, for a centre that may be off by so much.

    On one side of the centre keys are in the order of the scores, however rounded; a token on the other side
    than that at the edge must be nearer or farther by twice what the centre is off.
    """
    span = 2 * (off + KEYS * (abs(centre) - edge))
    here = np.float64(np.nan)
    for i in range(0, filled(size), WIDTH):
        x = load(room.key, i)
        bits = reaching(x, spread(edge)) & reaching(spread(edge), x)
        while bits:
            s = np.float64(score[i + lowest(bits)])
            bits &= bits - 1
            if not np.isnan(here) and s != here:
                return False  # tokens of different scores tie, or seem to
            here = s
    away, above = abs(here - centre), here > centre
    low, high = spread(np.float32(edge - span)), spread(np.float32(edge + span))
    for i in range(0, filled(size), WIDTH):
        x = load(room.key, i)
        bits = reaching(x, low) & reaching(high, x)
        while bits:
            at = i + lowest(bits)
            bits &= bits - 1
            s = np.float64(score[at])
            nearer = away - abs(s - centre)
            if (s > centre) != above and (nearer if room.key[at] >= edge else -nearer) <= 2 * off:
                return False
    return True


# The rules that keep what reaches a score: the score, and by how much it may be off.
#
#     top-k     s₍ₖ₎                          min-p     max s + log m
#     epsilon   b + log Z + log ε             eta       min(b + log Z + log η, b + ½ log η − m)
#     top-a     b − log Z + log a             top-nσ    max s − n·σ
#
# with b the base, at which tokens weigh 1, Z and m as in `weights`, and H = log Z + m. The rules themselves,
# their papers and their ties are told where they are defined, in `transforms`; the best token always stays.
#
# Top-k: of the maxima of k or more disjoint blocks, the k-th largest is a floor under the k-th largest of the
# row. What reaches that floor is little more than k tokens; only these are ranked.


BLOCK = 64


@kernel
def epsilon(value: float, base: float, whole: float) -> Any:
    """Of probability ε or more."""
    if value == 0:
        return -np.inf, 0.0
    return base + math.log(whole) + math.log(value), ROUNDING


@kernel
def eta(value: float, base: float, whole: float, below: float) -> Any:
    """Of probability η or more, or √η · e^(−H) where that is less."""
    if value == 0:
        return -np.inf, 0.0
    constant = base + math.log(whole) + math.log(value)
    falling = base + math.log(value) / 2 - below
    return min(constant, falling), ROUNDING + MEAN * below


@kernel
def top_a(value: float, base: float, whole: float, peak: float) -> Any:
    """At least a · max p times as probable as the best."""
    if value == 0:
        return -np.inf, 0.0
    return peak + (peak - base) - math.log(whole) + math.log(value), ROUNDING


@kernel
def min_p(value: float, peak: float) -> Any:
    """At least m times as probable as the best."""
    return (peak + math.log(value) if value > 0 else -np.inf), 0.0


@kernel
def top_n_sigma(value: float, peak: float, sigma: float, off: float) -> Any:
    """Within n standard deviations of the best."""
    return peak - value * sigma, value * off


@kernel
def kth_largest(score: Any, size: int, k: int, peak: Any, room: Scratch) -> Any:
    """The k-th largest score, or the lowest of a token that is left."""
    if k >= size:
        return ALIVE
    if 2 * k > size // BLOCK:
        return _kth_of_many(score, size, k, peak, room)
    blocks = size // BLOCK
    for b in range(blocks):
        best = load(score, b * BLOCK)
        for i in range(b * BLOCK + WIDTH, (b + 1) * BLOCK, WIDTH):
            best = higher(load(score, i), best)
        room.near_key[b], room.near_weight[b] = highest(best), 1
    floor = spread(part(room.near_key, room.near_weight, blocks, 0.0, np.float64(k)).key)
    count = NOUGHT
    for i in range(0, filled(size), WIDTH):
        bits = reaching(load(score, i), floor)
        while bits:
            room.near_key[count], room.near_weight[count] = score[i + lowest(bits)], 1
            bits &= bits - 1
            count += 1
    return max(ALIVE, part(room.near_key, room.near_weight, count, 0.0, np.float64(k)).key)


@kernel
def _kth_of_many(score: Any, size: int, k: int, peak: Any, room: Scratch) -> Any:
    """The same by intervals, every token weighing 1."""
    least = peak
    for i in range(size):
        room.key[i] = 1
        if ALIVE <= score[i] < least:
            least = score[i]
    return mass_edge(score, room.key, size, np.float64(peak), least, np.float64(k), room).key
