"""A row of scores through a chain of rules to a token, as `shortlist` does it in torch.

    y ~ f_k(… f_1(s) …),   and the log-probability of y in the distribution that it was drawn from

A rule is two numbers: which one it is, and its parameter. Every rule keeps the tokens whose key (the score,
but for `typical`) reaches a floor. Where rounding might have changed a floor or the token, the row is not
`sure`, and somebody else must decide (`shortlist/referee`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unspool.decode.compiled import nuclei, score_cuts
from unspool.decode.compiled.floor_cut import keep
from unspool.decode.compiled.inverse_cdf import find_block, find_token
from unspool.decode.compiled.row_scratch import STRIDE, Scratch, fill, scratch
from unspool.decode.compiled.row_weights import (
    ALIVE,
    MEAN,
    cool,
    deviation,
    exact_mean_below,
    mean_below,
    peak_of,
    weigh,
    weigh_again,
    weigh_block,
    weigh_blocks,
)
from unspool.kernels.compilation import Announced, version
from unspool.kernels.kernel import NOUGHT, entry, kernel
from unspool.kernels.turns import finish, meet, take

TEMPERATURE, TOP_K, MIN_P, TOP_N_SIGMA, EPSILON, ETA, TOP_A, TOP_P, TYPICAL = range(9)


class Drawn(NamedTuple):
    """What comes out, for every row."""

    token: Any
    logp: Any
    sure: Any


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
        return np.float64(score_cuts.kth_largest(score, size, int(value), peak, room)), 0.0
    if kind == MIN_P:
        return score_cuts.min_p(value, top)
    if kind == TOP_N_SIGMA:
        sigma, off = deviation(score, size, peak)
        return score_cuts.top_n_sigma(value, top, sigma, off)
    if kind == EPSILON:
        return score_cuts.epsilon(value, base, whole)
    if kind == ETA:
        return score_cuts.eta(value, base, whole, mean_below(score, size, np.float32(base), whole, room))
    return score_cuts.top_a(value, base, whole, top)


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
        edge, surplus, sure = nuclei.top_p(score, size, top, known.base, known.whole, value, room)
        left, whole, _ = keep(score, edge, surplus, score, size, whole, room)
        return left, whole, sure
    if kind == TYPICAL and value < 1:
        below = mean_below(score, size, np.float32(known.base), known.whole, room)
        centre = known.base - below
        least = nuclei.negligible(known.base, known.whole, value, size)
        floor = -max(abs(least - centre), abs(top - centre)) * (1 + nuclei.KEYS)
        edge, sure = nuclei.typical(score, size, centre, value, known.whole, floor, room)
        if sure and not nuclei.ordered(score, size, edge, centre, MEAN * below, room):
            below = exact_mean_below(score, size, np.float32(known.base))
            off = nuclei.SLACK * (abs(known.base) + below)
            sure = nuclei.ordered(score, size, edge, known.base - below, off, room)
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
        drawn.token[row], drawn.logp[row], drawn.sure[row] = found
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
