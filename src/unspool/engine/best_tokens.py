"""The k highest scores of every row with their tokens, best first.

Of equal scores the smaller token comes first. A row is walked once, WIDTH tokens at a time: most of these do
not reach the lowest of the k that were found so far, and cost one comparison together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.engine.compile_cache import Announced, version
from unspool.engine.kernel import NOUGHT, entry, kernel
from unspool.engine.sampling_passes import ALIVE
from unspool.engine.simd import WIDTH, load, lowest, plus, reaching, spread, total
from unspool.engine.threads import finish, meet, take

WORTH_SHARING = 400_000
"""Scores below which waking other threads takes longer than they would save."""


@kernel
def _insert(value: Any, token: int, found: int, k: int, at: int, values: Any, tokens: Any) -> int:
    """Put a token behind all that are as good, the last of k leaving; how many there are now."""
    place = min(found, k - 1)
    while place > 0 and values[at + place - 1] < value:
        values[at + place], tokens[at + place] = values[at + place - 1], tokens[at + place - 1]
        place -= 1
    values[at + place], tokens[at + place] = value, token
    return min(found + 1, k)


@kernel
def best_of_row(scores: Any, begin: int, size: int, k: int, at: int, values: Any, tokens: Any) -> bool:
    """values and tokens from `at` on, −∞ where fewer than k are left; False if a score is NaN."""
    for place in range(at, at + k):
        values[place], tokens[place] = -np.inf, 0
    found, sums, floor = NOUGHT, spread(np.float32(0)), ALIVE
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        x = load(scores, begin + i)
        sums = plus(sums, x)
        bits = reaching(x, spread(floor))
        while bits:
            token = i + lowest(bits)
            bits &= bits - 1
            value = scores[begin + token]
            if found < k or value > values[at + k - 1]:
                found = _insert(value, token, found, k, at, values, tokens)
                floor = values[at + k - 1] if found == k else ALIVE
    rest = total(sums)
    for token in range(even, size):
        value = scores[begin + token]
        rest += value
        if value >= ALIVE and (found < k or value > values[at + k - 1]):
            found = _insert(value, token, found, k, at, values, tokens)
    return not np.isnan(rest)


def compiled_best_tokens(version: int) -> Any:
    """The entry, kept on disk under its version."""

    @entry
    def best_of_rows(scores: Any, values: Any, tokens: Any, sure: Any, turns: Any) -> int:
        """Every row that no other thread has taken."""
        rows = sure.size
        size, k = scores.size // rows, values.size // rows
        row = take(turns, 0)
        while row < rows:
            sure[row] = best_of_row(scores, row * size, size, k, row * k, values, tokens)
            row = finish(turns, 0)
        meet(turns, 0, rows)
        return version

    return best_of_rows


best_of_rows = Announced(
    "the best tokens (once, a few seconds)", compiled_best_tokens(version(Path(__file__).parent))
)


def best_tokens(scores_NV: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """(N, k) scores and their tokens; None where a score is NaN, or +∞ beside −∞."""
    N = len(scores_NV)
    values, tokens, sure = np.empty(N * k, np.float32), np.empty(N * k, np.int64), np.empty(N, np.bool_)
    scores = scores_NV.detach().contiguous().view(-1).numpy()
    shared = N > 1 and scores.size >= WORTH_SHARING
    threads = min(N, torch.get_num_threads()) if shared else 1
    best_of_rows.shared(threads, scores, values, tokens, sure, np.zeros(2, np.int64))
    if not sure.all():
        return None
    return torch.from_numpy(values).view(N, k), torch.from_numpy(tokens).view(N, k)


# The best continuations of every beam, of the best tokens of its rows.
#
#     best_c { σ_j + s_j(v) :  j a row of the beam,  v one of its best tokens }
#
# Each row's tokens come best first, so that the next candidate of a beam is the next token of one of its
# rows: they are merged. Of equal sums the earlier row comes first.


FIELDS = 7
"""Of a candidate: parent, token, log p, score, total, coverage penalty, key."""


def compiled_beam_ranking(version: int) -> Any:
    """The entry, kept on disk under its version."""

    @entry
    def merge_rows(
        keys: Any, tokens: Any, sums: Any, beams: Any, logp: Any, scores: Any, covered: Any, found: Any
    ) -> int:
        """found (beams, candidates, FIELDS) of keys (rows, k); a total of −∞ is no candidate."""
        k, taken = keys.shape[1], np.zeros(len(keys), np.int64)
        for beam in range(len(found)):
            for place in range(found.shape[1]):
                best, row = -np.inf, NOUGHT - 1
                for n in range(beams[beam], beams[beam + 1]):
                    if taken[n] < k and sums[n] + np.float64(keys[n, taken[n]]) > best:
                        best, row = sums[n] + np.float64(keys[n, taken[n]]), n
                out = found[beam, place]
                if row < 0:
                    out[:] = -np.inf
                    continue
                token = tokens[row, taken[row]]
                taken[row] += 1
                out[0], out[1] = row - beams[beam], token
                out[2], out[3] = logp[row, token], scores[row, token]
                out[4], out[6] = sums[row] + out[3], best
                out[5] = covered[row] if covered.size else 0.0
        return version

    return merge_rows


merge_rows = Announced(
    "the ranking of beams (once, seconds)", compiled_beam_ranking(version(Path(__file__).parent))
)


def ranked(
    beams: Sequence[Sequence[float]],
    count: int,
    covered: Sequence[float],
    keys_NK: NDArray[np.float32],
    tokens_NK: NDArray[np.int64],
    logp_NV: NDArray[np.float32],
    scores_NV: NDArray[np.float32],
) -> list[list[float]]:
    """For every beam the fields of its `count` best candidates, one candidate after another.

    `beams` holds the sums of the rows of each beam; `covered` is empty, or has the penalty of every row.
    """
    sums = np.array([total for totals in beams for total in totals], np.float64)
    ends = np.array([0, *accumulate(map(len, beams))], np.int64)
    found = np.empty((len(beams), count, FIELDS), np.float64)
    merge_rows(keys_NK, tokens_NK, sums, ends, logp_NV, scores_NV, np.array(covered, np.float64), found)
    fields: list[list[float]] = found.reshape(len(beams), -1).tolist()
    return fields
