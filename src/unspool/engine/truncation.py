"""Kernels of the truncations; `decode.transforms` defines them and documents papers and ties.

Threshold rules keep the tokens whose score reaches a threshold (the best token always stays):

    top-k     s₍ₖ₎                          min-p     max s + log m
    epsilon   b + log Z + log ε             eta       min(b + log Z + log η, b + ½ log η − m)
    top-a     b − log Z + log a             top-nσ    max s − n·σ

with b, Z, m as in `sampling_passes` and H = log Z + m. Mass rules rank the tokens by a key and keep a mass:

    top-p     key(x) = s(x)                mass p
    typical   key(x) = −|s(x) − (b − m)|   mass τ          for  −log p(x) − H = (b − m) − s(x)

Tokens of p < (1 − mass)/2W weigh less than 1 − mass together, so the edge is at or above the key that every
other token reaches: a floor for `mass_edge`.

A rule also returns its rounding bound: by how much its threshold may be wrong because of rounding. If a token
is closer to the threshold than that, the row is not certain and is drawn again in float64
(`decode.fast_sampling`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.engine import EPSILON, MIN_P, TOP_A, TOP_K, TOP_N_SIGMA
from unspool.engine.kernel import INT64_ZERO, inline_kernel, kernel
from unspool.engine.sampling_passes import (
    MEAN_BOUND,
    MIN_SCORE,
    ROUNDING_BOUND,
    Normaliser,
    Scratch,
    deviation,
    exact_masses,
    mass_edge,
    mean_below,
    padded_size,
    select_edge,
)
from unspool.engine.simd import (
    WIDTH,
    ge_mask,
    load,
    lowest_bit,
    splat,
    store,
    vabs_difference,
    vmax,
    vmax_element,
    vmul,
)

FLOAT64_BOUND = 1e-12
"""Relative error of a float64 sum of weights, at most."""


@inline_kernel
def share_bound(share: float) -> float:
    """Rounding bound of the share f that some tokens have of a row's weight: 2 · f(1 − f) ·
    ROUNDING_BOUND."""
    return 2 * ROUNDING_BOUND * share * (1 - share) + FLOAT64_BOUND


@kernel
def negligible_score(base: float, total: float, mass: float, size: int) -> float:
    """A score below which all tokens together weigh less than half of 1 − mass."""
    return base + math.log(total * (1 - mass) / (2 * size))


@kernel
def top_p(score: Any, size: int, peak: float, base: float, total: float, p: float, scratch: Scratch) -> Any:
    """The edge, how many tokens exactly at the edge are not needed, and whether that is certain."""
    mass = p * total
    floor = np.float32(negligible_score(base, total, p, size))
    edge = mass_edge(score, scratch.weight, size, peak, floor, mass, scratch)
    surplus, is_certain = _surplus(edge.before, edge.here, edge.ties, mass, share_bound(p) * total)
    if not is_certain:
        before, here, total = exact_masses(score, score, size, edge.key, base)
        surplus, is_certain = _surplus(before, here, edge.ties, p * total, FLOAT64_BOUND * total)
    return edge.key, surplus, is_certain


@kernel
def _surplus(before: float, here: float, ties: int, mass: float, off: float) -> Any:
    """How many ties are not needed to reach a mass, and whether that is certain; `off` is its error."""
    each = here / ties
    if each == 0:
        return 0, False
    needed = min(ties, max(1, math.ceil((mass - before) / each)))
    upto = before + needed * each
    return ties - needed, upto - mass > off and mass - (upto - each) > off


@kernel
def typical(
    score: Any,
    size: int,
    base: float,
    centre: float,
    mass: float,
    total: float,
    floor: float,
    scratch: Scratch,
) -> Any:
    """The edge of `scratch.key`, and whether the set that reaches it is certain; all ties stay."""
    middle, minus_one = splat(np.float32(centre)), splat(np.float32(-1))
    for i in range(0, padded_size(size), WIDTH):
        store(scratch.key, i, vmul(vabs_difference(load(score, i), middle), minus_one))
    edge = mass_edge(scratch.key, scratch.weight, size, 0.0, np.float32(floor), mass * total, scratch)
    off = share_bound(mass) * total
    if edge.before + off < mass * total < edge.before + edge.here - off:
        return edge.key, True
    before, here, total = exact_masses(score, scratch.key, size, edge.key, base)
    off = FLOAT64_BOUND * total
    return edge.key, before + off < mass * total < before + here - off


@kernel
def has_clear_order(score: Any, size: int, edge: Any, centre: float, off: float, scratch: Scratch) -> bool:
    """True if the tokens that reach the edge are the nearest to the centre, which may be wrong by `off`.

    On one side of the centre keys have the order of the scores despite rounding. A token on the other side
    than the one at the edge must be nearer or farther by more than twice the error of the centre.
    """
    span = 2 * (off + ROUNDING_BOUND * (abs(centre) - edge))
    here = np.float64(np.nan)
    for i in range(0, padded_size(size), WIDTH):
        x = load(scratch.key, i)
        bits = ge_mask(x, splat(edge)) & ge_mask(splat(edge), x)
        while bits:
            s = np.float64(score[i + lowest_bit(bits)])
            bits &= bits - 1
            if not np.isnan(here) and s != here:
                return False  # tokens of different scores tie, perhaps by rounding
            here = s
    away, above = abs(here - centre), here > centre
    low, high = splat(np.float32(edge - span)), splat(np.float32(edge + span))
    for i in range(0, padded_size(size), WIDTH):
        x = load(scratch.key, i)
        bits = ge_mask(x, low) & ge_mask(high, x)
        while bits:
            at = i + lowest_bit(bits)
            bits &= bits - 1
            s = np.float64(score[at])
            nearer = away - abs(s - centre)
            if (s > centre) != above and (nearer if scratch.key[at] >= edge else -nearer) <= 2 * off:
                return False
    return True


BLOCK = 64


@kernel
def kth_largest(score: Any, size: int, k: int, peak: Any, scratch: Scratch) -> Any:
    """The k-th largest score, or the lowest score if fewer remain.

    The k-th largest of the maxima of k or more blocks is a floor below the k-th largest score. Little more
    than k tokens reach that floor, and only these are ranked.
    """
    if k >= size:
        return MIN_SCORE
    if 2 * k > size // BLOCK:
        return _kth_by_mass(score, size, k, peak, scratch)
    blocks = size // BLOCK
    for b in range(blocks):
        best = load(score, b * BLOCK)
        for i in range(b * BLOCK + WIDTH, (b + 1) * BLOCK, WIDTH):
            best = vmax(load(score, i), best)
        scratch.near_key[b], scratch.near_weight[b] = vmax_element(best), 1
    floor = splat(select_edge(scratch.near_key, scratch.near_weight, blocks, 0.0, np.float64(k)).key)
    count = INT64_ZERO
    for i in range(0, padded_size(size), WIDTH):
        bits = ge_mask(load(score, i), floor)
        while bits:
            scratch.near_key[count], scratch.near_weight[count] = score[i + lowest_bit(bits)], 1
            bits &= bits - 1
            count += 1
    return max(MIN_SCORE, select_edge(scratch.near_key, scratch.near_weight, count, 0.0, np.float64(k)).key)


@kernel
def _kth_by_mass(score: Any, size: int, k: int, peak: Any, scratch: Scratch) -> Any:
    """`kth_largest` for large k: the edge of mass k if every token weighs 1."""
    least = peak
    for i in range(size):
        scratch.key[i] = 1
        if MIN_SCORE <= score[i] < least:
            least = score[i]
    return mass_edge(score, scratch.key, size, np.float64(peak), least, np.float64(k), scratch).key


@kernel
def score_threshold(
    code: int, value: float, score: Any, size: int, peak: Any, normaliser: Normaliser, scratch: Scratch
) -> Any:
    """The threshold of a rule, and its rounding bound."""
    base, total, top = normaliser.base, normaliser.total, np.float64(peak)
    if code == TOP_K:
        return np.float64(kth_largest(score, size, int(value), peak, scratch)), 0.0
    if code == TOP_N_SIGMA:
        sigma, off = deviation(score, size, peak)
        return top - value * sigma, value * off
    if value == 0:
        return -np.inf, 0.0
    if code == MIN_P:
        return top + math.log(value), 0.0
    if code == TOP_A:
        return top + (top - base) - math.log(total) + math.log(value), ROUNDING_BOUND
    constant = base + math.log(total) + math.log(value)
    if code == EPSILON:
        return constant, ROUNDING_BOUND
    below = mean_below(score, size, np.float32(base), total, scratch)
    return min(constant, base + math.log(value) / 2 - below), ROUNDING_BOUND + MEAN_BOUND * below
