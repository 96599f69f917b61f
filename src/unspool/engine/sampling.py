"""The compiled way from scores to tokens, as Python calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unspool.engine import (
    EPSILON,
    ETA,
    MIN_P,
    TEMPERATURE,
    TOP_K,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL,
    truncation,
)
from unspool.engine.compile_cache import Announced, version
from unspool.engine.kernel import NOUGHT, entry, kernel
from unspool.engine.sampling_passes import (
    ALIVE,
    BLOCK,
    MEAN,
    STRIDE,
    Scratch,
    cool,
    deviation,
    exact_mean_below,
    fill,
    filled,
    keep,
    mean_below,
    peak_of,
    rooms,
    scratch,
    weigh,
    weigh_again,
    weigh_block,
    weigh_blocks,
)
from unspool.engine.threads import finish, meet, take
from unspool.engine.truncation import margin

# Draw from a list of weights by inverting their cumulative sum in two levels.
#
#     y = min { i : Σ_{j≤i} w_j > u · Z },   u uniform on [0, 1)
#
# The masses of blocks are known; only the block that u falls into is walked.


@kernel
def find_block(size: int, target: float, room: Scratch) -> Any:
    """The block that the target falls into, and the mass before it."""
    before, block, end = 0.0, 0, filled(size)
    while (block + 1) * BLOCK < end and before + room.mass[block] <= target:
        before += room.mass[block]
        block += 1
    return block, before


@kernel
def find_token(size: int, whole: float, u: float, block: int, before: float, room: Scratch) -> Any:
    """The place in the list, and whether rounding cannot have changed it."""
    target = u * whole
    place, last = block * BLOCK, min((block + 1) * BLOCK, size)
    while place < last - 1 and before + room.weight[place] <= target:
        before += room.weight[place]
        place += 1
    off = margin(u) * whole
    after = before + room.weight[place]
    return place, target - before > off and after - target > off


# A row of scores through a chain of rules to a token, as `shortlist` does it in torch.
#
#     y ~ f_k(… f_1(s) …),   and the log-probability of y in the distribution that it was drawn from
#
# A rule is two numbers: which one it is, and its parameter. Every rule keeps the tokens whose key (the score,
# but for `typical`) reaches a floor. Where rounding might have changed a floor or the token, the row is not
# `sure`, and somebody else must decide (`shortlist/referee`).


class Drawn(NamedTuple):
    """What comes out, for every row."""

    token: Any
    logp: Any
    certain: Any


class Weighed(NamedTuple):
    """What is known of a list whose weights have been computed."""

    base: float
    """The score at which tokens weigh 1."""
    whole: float
    """Z, the weight of all."""


@kernel
def reach(kind: int, value: float, score: Any, size: int, peak: Any, known: Weighed, room: Scratch) -> Any:
    """The score that a rule asks for, and by how much it may be off."""
    base, whole, top = known.base, known.whole, np.float64(peak)
    if kind == TOP_K:
        return np.float64(truncation.kth_largest(score, size, int(value), peak, room)), 0.0
    if kind == MIN_P:
        return truncation.min_p(value, top)
    if kind == TOP_N_SIGMA:
        sigma, off = deviation(score, size, peak)
        return truncation.top_n_sigma(value, top, sigma, off)
    if kind == EPSILON:
        return truncation.epsilon(value, base, whole)
    if kind == ETA:
        return truncation.eta(value, base, whole, mean_below(score, size, np.float32(base), whole, room))
    return truncation.top_a(value, base, whole, top)


@kernel
def up(value: float) -> Any:
    """The lowest number of single precision that is not below."""
    found = np.float32(value)
    if np.float64(found) < value:
        found = np.nextafter(found, np.float32(np.inf))
    return max(found, ALIVE)


@kernel
def cut(
    kind: int, value: float, score: Any, size: int, whole: bool, peak: Any, known: Weighed, room: Scratch
) -> Any:
    """What a rule leaves in the room: its size, whether places are still ids, and whether it is sure."""
    top = np.float64(peak)
    if kind == TOP_P and value < 1:
        edge, surplus, sure = truncation.top_p(score, size, top, known.base, known.whole, value, room)
        left, whole, _ = keep(score, edge, surplus, score, size, whole, room)
        return left, whole, sure
    if kind == TYPICAL and value < 1:
        below = mean_below(score, size, np.float32(known.base), known.whole, room)
        centre = known.base - below
        least = truncation.negligible(known.base, known.whole, value, size)
        floor = -max(abs(least - centre), abs(top - centre)) * (1 + truncation.KEYS)
        edge, sure = truncation.typical(score, size, centre, value, known.whole, floor, room)
        if sure and not truncation.ordered(score, size, edge, centre, MEAN * below, room):
            below = exact_mean_below(score, size, np.float32(known.base))
            off = truncation.SLACK * (abs(known.base) + below)
            sure = truncation.ordered(score, size, edge, known.base - below, off, room)
        left, whole, _ = keep(room.key, edge, NOUGHT, score, size, whole, room)
        return left, whole, sure
    if kind in (TOP_P, TYPICAL):
        left, whole, _ = keep(score, ALIVE, NOUGHT, score, size, whole, room)
        return left, whole, True
    floor, off = reach(kind, value, score, size, peak, known, room)
    if floor - off >= top:  # the best token always stays
        floor, off = top, 0.0
    left, whole, least = keep(score, up(floor - off), NOUGHT, score, size, whole, room)
    return left, whole, off == 0 or least >= floor + off


@kernel
def draw_row(scores: Any, size: int, kinds: Any, values: Any, u: float, room: Scratch) -> Any:
    """The token, its log-probability and whether rounding cannot have changed the token."""
    score, whole = scores, size > 0  # not True: numba compiles anew for every constant
    if size % STRIDE:
        for i in range(size):
            room.score[i] = scores[i]
        fill(room, size)
        score = room.score
    peak = peak_of(score, size)
    if not np.isfinite(peak):
        return 0, np.nan, False
    sure, weighed, known = True, False, Weighed(0.0, 0.0)
    for rule in range(kinds.size):
        kind, value = kinds[rule], values[rule]
        if kind == TEMPERATURE:
            cool(score, size, peak, np.float32(value), room.score)
            score, peak, weighed = room.score, np.float32(0), False
            continue
        if kind >= EPSILON and not weighed:
            known, weighed = Weighed(np.float64(peak), weigh(score, size, peak, room)), True
        size, whole, fine = cut(kind, value, score, size, whole, peak, known, room)
        sure = sure and fine
        score = room.score
        peak = peak_of(score, size)
        if weighed:
            known = Weighed(known.base, weigh_again(size, room))
    if not weighed:
        known = Weighed(np.float64(peak), weigh_blocks(score, size, peak, room))
    block, before = find_block(size, u * known.whole, room)
    if not weighed:
        weigh_block(score, size, peak, block, room)
    place, fine = find_token(size, known.whole, u, block, before, room)
    token = place if whole else room.token[place]
    return token, np.log(room.weight[place] / known.whole), sure and fine


@kernel
def _take_part(scores: Any, kinds: Any, values: Any, u: Any, drawn: Drawn, rooms: Any, turns: Any) -> None:
    """Every row that no other thread has taken, in a scratch that no other thread has."""
    room = scratch(rooms[take(turns, 1)], scores.shape[1])
    row = take(turns, 0)
    while row < u.size:
        found = draw_row(scores[row], scores.shape[1], kinds, values, u[row], room)
        drawn.token[row], drawn.logp[row], drawn.certain[row] = found
        row = finish(turns, 0)
    meet(turns, 0, u.size)


def compiled(version: int) -> Any:
    """The entry, kept on disk under its version."""

    @entry
    def draw_rows(scores: Any, kinds: Any, values: Any, u: Any, drawn: Drawn, rooms: Any, turns: Any) -> int:
        _take_part(scores, kinds, values, u, drawn, rooms, turns)
        return version

    return draw_rows


draw_rows = Announced("the sampling step (once, about 10 seconds)", compiled(version(Path(__file__).parent)))


WORTH_SHARING = 200_000
"""Scores below which waking other threads takes longer than they would save."""


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
    memory, turns = rooms(threads, scores_NV.shape[1]), np.zeros(4, np.int64)
    draw_rows.shared(threads, scores_NV, codes, parameters, u_N, drawn, memory, turns)
    return drawn
