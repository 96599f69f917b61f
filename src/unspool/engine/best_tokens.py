"""Compiled selection for greedy and beam search: the best tokens of rows, and the best candidates of beams.

Ties: the lower token id is first, then the earlier row. One pass over a row compares WIDTH tokens at once
with the lowest of the k best so far, which most tokens do not reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.engine.compile_cache import CompiledEntry
from unspool.engine.kernel import INT64_ZERO, entry, kernel
from unspool.engine.sampling_passes import MIN_SCORE
from unspool.engine.simd import WIDTH, ge_mask, load, lowest_bit, splat, vadd, vsum
from unspool.engine.threads import barrier, claim, complete

WORTH_SHARING = 400_000
"""Fewer scores are faster in one thread."""


@kernel
def _insert(value: Any, token: int, count: int, k: int, at: int, values: Any, tokens: Any) -> int:
    """Insert a token after all that are at least as good, among at most k; the new number."""
    place = min(count, k - 1)
    while place > 0 and values[at + place - 1] < value:
        values[at + place], tokens[at + place] = values[at + place - 1], tokens[at + place - 1]
        place -= 1
    values[at + place], tokens[at + place] = value, token
    return min(count + 1, k)


@kernel
def best_of_row(scores: Any, begin: int, size: int, k: int, at: int, values: Any, tokens: Any) -> bool:
    """Write values and tokens from `at` on, −∞ if fewer than k remain; False if a score is NaN."""
    for place in range(at, at + k):
        values[place], tokens[place] = -np.inf, 0
    count, sums, floor = INT64_ZERO, splat(np.float32(0)), MIN_SCORE
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        x = load(scores, begin + i)
        sums = vadd(sums, x)
        bits = ge_mask(x, splat(floor))
        while bits:
            token = i + lowest_bit(bits)
            bits &= bits - 1
            value = scores[begin + token]
            if count < k or value > values[at + k - 1]:
                count = _insert(value, token, count, k, at, values, tokens)
                floor = values[at + k - 1] if count == k else MIN_SCORE
    rest = vsum(sums)
    for token in range(even, size):
        value = scores[begin + token]
        rest += value
        if value >= MIN_SCORE and (count < k or value > values[at + k - 1]):
            count = _insert(value, token, count, k, at, values, tokens)
    return not np.isnan(rest)


@partial(CompiledEntry, "the best tokens (once, a few seconds)")
@entry
def best_of_rows(scores: Any, values: Any, tokens: Any, is_valid: Any, queue: Any) -> None:
    """`best_of_row` for every row."""
    rows = is_valid.size
    size, k = scores.size // rows, values.size // rows
    row = claim(queue, 0)
    while row < rows:
        is_valid[row] = best_of_row(scores, row * size, size, k, row * k, values, tokens)
        row = complete(queue, 0)
    barrier(queue, 0, rows)


def best_tokens(scores_NV: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """(N, k) scores and their tokens; None if a score is NaN, or +∞ and −∞ occur together."""
    N = len(scores_NV)
    values, tokens, is_valid = np.empty(N * k, np.float32), np.empty(N * k, np.int64), np.empty(N, np.bool_)
    scores = scores_NV.detach().contiguous().view(-1).numpy()
    shared = N > 1 and scores.size >= WORTH_SHARING
    threads = min(N, torch.get_num_threads()) if shared else 1
    best_of_rows.run(threads, scores, values, tokens, is_valid, np.zeros(2, np.int64))
    if not is_valid.all():
        return None
    return torch.from_numpy(values).view(N, k), torch.from_numpy(tokens).view(N, k)


FIELDS = 7
"""Fields of a candidate: parent, token, log p, score, total, coverage penalty, key."""


@partial(CompiledEntry, "the ranking of beams (once, seconds)")
@entry
def merge_rows(
    keys: Any, tokens: Any, sums: Any, beams: Any, logp: Any, scores: Any, covered: Any, result: Any
) -> None:
    """Merge the sorted rows (rows, k) of each beam into result (beams, candidates, FIELDS):

    best_c { σ_j + s_j(v) :  j a row of the beam,  v one of its best tokens }

    If there are too few candidates, the fields of the others are −∞.
    """
    k, taken = keys.shape[1], np.zeros(len(keys), np.int64)
    for beam in range(len(result)):
        for place in range(result.shape[1]):
            best, row = -np.inf, INT64_ZERO - 1
            for n in range(beams[beam], beams[beam + 1]):
                if taken[n] < k and sums[n] + np.float64(keys[n, taken[n]]) > best:
                    best, row = sums[n] + np.float64(keys[n, taken[n]]), n
            out = result[beam, place]
            if row < 0:
                out[:] = -np.inf
                continue
            token = tokens[row, taken[row]]
            taken[row] += 1
            out[0], out[1] = row - beams[beam], token
            out[2], out[3] = logp[row, token], scores[row, token]
            out[4], out[6] = sums[row] + out[3], best
            out[5] = covered[row] if covered.size else 0.0


def rank_beams(
    beams: Sequence[Sequence[float]],
    count: int,
    covered: Sequence[float],
    keys_NK: NDArray[np.float32],
    tokens_NK: NDArray[np.int64],
    logp_NV: NDArray[np.float32],
    scores_NV: NDArray[np.float32],
) -> list[list[float]]:
    """For every beam the fields of its `count` best candidates, one candidate after another.

    `beams` holds the totals of the rows of each beam; `covered` is empty or the coverage penalty of every
    row.
    """
    sums = np.array([total for totals in beams for total in totals], np.float64)
    ends = np.array([0, *accumulate(map(len, beams))], np.int64)
    result = np.empty((len(beams), count, FIELDS), np.float64)
    merge_rows(keys_NK, tokens_NK, sums, ends, logp_NV, scores_NV, np.array(covered, np.float64), result)
    fields: list[list[float]] = result.reshape(len(beams), -1).tolist()
    return fields
