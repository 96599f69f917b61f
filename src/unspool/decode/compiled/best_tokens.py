"""The k highest scores of every row with their tokens, best first.

Of equal scores the smaller token comes first. A row is walked once, WIDTH tokens at a time: most of these do
not reach the lowest of the k that were found so far, and cost one comparison together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.decode.compiled.row_weights import ALIVE
from unspool.kernels.choices import lowest, reaching
from unspool.kernels.compilation import Announced, version
from unspool.kernels.kernel import NOUGHT, entry, kernel
from unspool.kernels.lanes import WIDTH, load, plus, spread, total
from unspool.kernels.turns import finish, meet, take

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


def compiled(version: int) -> Any:
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


best_of_rows = Announced("the best tokens (once, a few seconds)", compiled(version(Path(__file__).parent)))


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
