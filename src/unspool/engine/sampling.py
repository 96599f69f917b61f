"""Compiled sampling: truncate a row of scores by a chain of rules and draw a token, without sorting.

    y ~ f_k(… f_1(s) …),   and the log-probability of y in the distribution that it was drawn from

A rule is a code (`engine`) and a parameter. Every rule keeps the tokens whose key (the score, except in
typical sampling) reaches a floor. The token is drawn by inverting the cumulative sum in two levels, blocks
and then tokens of one block:

    y = min { i : Σ_{j≤i} w_j > u · Z },   u uniform on [0, 1)

If rounding could have changed a floor or the token, the row is not `certain`, and `decode.fast_sampling`
draws it again in float64.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unspool.engine import EPSILON, TEMPERATURE, TOP_P, TYPICAL, truncation
from unspool.engine.compile_cache import CompiledEntry
from unspool.engine.kernel import INT64_ZERO, entry, kernel
from unspool.engine.sampling_passes import (
    BLOCK,
    LIST_MULTIPLE,
    MEAN_BOUND,
    MIN_SCORE,
    ROUNDING_BOUND,
    Normaliser,
    Scratch,
    best_score,
    compute_weights,
    divide_by_temperature,
    exact_mean_below,
    mean_below,
    pad_list,
    padded_size,
    scratch_memory,
    scratch_view,
    sum_weights,
    truncate_below,
)
from unspool.engine.threads import chunk_phase, claim
from unspool.engine.truncation import share_bound


@kernel
def find_block(size: int, target: float, scratch: Scratch) -> Any:
    """The block that contains the target, and the mass before it."""
    before, block, end = 0.0, 0, padded_size(size)
    while (block + 1) * BLOCK < end and before + scratch.mass[block] <= target:
        before += scratch.mass[block]
        block += 1
    return block, before


@kernel
def find_token(size: int, total: float, u: float, block: int, before: float, scratch: Scratch) -> Any:
    """The index in the list, and whether it is certain."""
    target = u * total
    place, last = block * BLOCK, min((block + 1) * BLOCK, size)
    while place < last - 1 and before + scratch.weight[place] <= target:
        before += scratch.weight[place]
        place += 1
    off = share_bound(u) * total
    after = before + scratch.weight[place]
    return place, target - before > off and after - target > off


@kernel
def find_token_exactly(score: Any, size: int, base: float, u: float) -> Any:
    """The same in float64, and the token's share of the weight."""
    shift, total = np.float32(base), 0.0
    for i in range(size):
        total += math.exp(np.float64(np.float32(score[i] - shift)))
    target, off = u * total, truncation.FLOAT64_BOUND * total
    place, before = 0, 0.0
    weight = math.exp(np.float64(np.float32(score[0] - shift)))
    while place < size - 1 and before + weight <= target:
        before += weight
        place += 1
        weight = math.exp(np.float64(np.float32(score[place] - shift)))
    return place, target - before > off and before + weight - target > off, weight / total


class Drawn(NamedTuple):
    """The results for every row."""

    token: Any
    logp: Any
    certain: Any


@kernel
def round_up(value: float) -> Any:
    """The lowest float32 that is not below a float64, nor below MIN_SCORE."""
    rounded = np.float32(value)
    if np.float64(rounded) < value:
        rounded = np.nextafter(rounded, np.float32(np.inf))
    return max(rounded, MIN_SCORE)


@kernel
def truncate(
    code: int,
    value: float,
    score: Any,
    size: int,
    is_full: bool,
    peak: Any,
    normaliser: Normaliser,
    scratch: Scratch,
) -> Any:
    """Apply a rule to the list: its new size, whether it is still full, and whether the result is certain."""
    top = np.float64(peak)
    if code == TOP_P and value < 1:
        edge, surplus, is_certain = truncation.top_p(
            score, size, top, normaliser.base, normaliser.total, value, scratch
        )
        left, is_full, _ = truncate_below(score, edge, surplus, score, size, is_full, scratch)
        return left, is_full, is_certain
    if code == TYPICAL and value < 1:
        below = mean_below(score, size, np.float32(normaliser.base), normaliser.total, scratch)
        centre = normaliser.base - below
        least = truncation.negligible_score(normaliser.base, normaliser.total, value, size)
        floor = -max(abs(least - centre), abs(top - centre)) * (1 + ROUNDING_BOUND)
        edge, is_certain = truncation.typical(
            score, size, normaliser.base, centre, value, normaliser.total, floor, scratch
        )
        if is_certain and not truncation.has_clear_order(
            score, size, edge, centre, MEAN_BOUND * below, scratch
        ):
            below = exact_mean_below(score, size, np.float32(normaliser.base))
            off = truncation.FLOAT64_BOUND * (abs(normaliser.base) + below)
            is_certain = truncation.has_clear_order(score, size, edge, normaliser.base - below, off, scratch)
        left, is_full, _ = truncate_below(scratch.key, edge, INT64_ZERO, score, size, is_full, scratch)
        return left, is_full, is_certain
    if code in (TOP_P, TYPICAL):
        left, is_full, _ = truncate_below(score, MIN_SCORE, INT64_ZERO, score, size, is_full, scratch)
        return left, is_full, True
    floor, off = truncation.score_threshold(code, value, score, size, peak, normaliser, scratch)
    if floor - off >= top:  # the best token always stays
        floor, off = top, 0.0
    left, is_full, least = truncate_below(
        score, round_up(floor - off), INT64_ZERO, score, size, is_full, scratch
    )
    return left, is_full, off == 0 or least >= floor + off


@kernel
def draw_row(scores: Any, size: int, codes: Any, parameters: Any, u: float, scratch: Scratch) -> Any:
    """The token, its log-probability, and whether the token is certain."""
    score, is_full = scores, size > 0  # not True: numba compiles again for a literal
    if size % LIST_MULTIPLE:
        for i in range(size):
            scratch.score[i] = scores[i]
        pad_list(scratch, size)
        score = scratch.score
    peak = best_score(score, size)
    if not np.isfinite(peak):
        return 0, np.nan, False
    is_certain, has_weights, normaliser = True, False, Normaliser(0.0, 0.0)
    for rule in range(codes.size):
        code, value = codes[rule], parameters[rule]
        if code == TEMPERATURE:
            divide_by_temperature(score, size, peak, np.float32(value), scratch.score)
            score, peak, has_weights = scratch.score, np.float32(0), False
            continue
        if code >= EPSILON and not has_weights:
            normaliser, has_weights = (
                Normaliser(np.float64(peak), compute_weights(score, size, peak, scratch)),
                True,
            )
        size, is_full, is_exact = truncate(code, value, score, size, is_full, peak, normaliser, scratch)
        is_certain = is_certain and is_exact
        score = scratch.score
        peak = best_score(score, size)
        if has_weights:
            normaliser = Normaliser(normaliser.base, sum_weights(size, scratch))
    if not has_weights:
        normaliser = Normaliser(np.float64(peak), compute_weights(score, size, peak, scratch))
    block, before = find_block(size, u * normaliser.total, scratch)
    place, is_exact = find_token(size, normaliser.total, u, block, before, scratch)
    share = scratch.weight[place] / normaliser.total
    if is_certain and not is_exact:
        place, is_certain, share = find_token_exactly(score, size, normaliser.base, u)
    return place if is_full else scratch.token[place], np.log(share), is_certain


@chunk_phase
def _draw_phase(
    row: int, scores: Any, codes: Any, parameters: Any, u: Any, drawn: Drawn, scratch: Scratch
) -> None:
    result = draw_row(scores[row], scores.shape[1], codes, parameters, u[row], scratch)
    drawn.token[row], drawn.logp[row], drawn.certain[row] = result


@kernel
def _draw_rows(
    scores: Any, codes: Any, parameters: Any, u: Any, drawn: Drawn, memory: Any, queue: Any
) -> None:
    scratch = scratch_view(memory[claim(queue, 1)], scores.shape[1])  # one for each thread
    _draw_phase(queue, INT64_ZERO, u.size, scores, codes, parameters, u, drawn, scratch)


@partial(CompiledEntry, "the sampler (once, about 10 seconds)")
@entry
def draw_rows(
    scores: Any, codes: Any, parameters: Any, u: Any, drawn: Drawn, memory: Any, queue: Any
) -> None:
    """Draw a token for each row."""
    _draw_rows(scores, codes, parameters, u, drawn, memory, queue)


WORTH_SHARING = 200_000
"""Fewer scores are faster in one thread."""


def draw(
    scores_NV: NDArray[np.float32],
    codes: NDArray[np.int64],
    parameters: NDArray[np.float64],
    u_N: NDArray[np.float64],
) -> Drawn:
    """For every row the token at the share u of the mass that the rules keep."""
    N = len(u_N)
    drawn = Drawn(np.empty(N, np.int64), np.empty(N, np.float64), np.empty(N, np.bool_))
    threads = 1 if scores_NV.size < WORTH_SHARING or N == 1 else min(N, torch.get_num_threads())
    memory, queue = scratch_memory(threads, scores_NV.shape[1]), np.zeros(4, np.int64)
    draw_rows.run(threads, scores_NV, codes, parameters, u_N, drawn, memory, queue)
    return drawn
