"""What else a token might have been: the most probable ones of every row.

Twice, because they are two questions: what the model itself found probable, and what was left to draw from.
"""

from __future__ import annotations

import math

from torch import Tensor

from unspool.decode.path import Ranked
from unspool.decode.search.candidates import settled
from unspool.decode.shortlist.best_tokens import compiled_best


def alternatives(logp_NV: Tensor, scores_NV: Tensor, count: int) -> list[Ranked]:
    """The `count` most probable tokens of every row, by the model itself and by what is ranked."""

    def top(values_NV: Tensor) -> list[tuple[tuple[int, float], ...]]:
        k = min(count, values_NV.shape[1])
        values_NK, tokens_NK = compiled_best(values_NV, k) or settled(values_NV, k)[:2]
        rows = zip(tokens_NK.tolist(), values_NK.tolist(), strict=True)
        return [tuple(pair for pair in zip(*row, strict=True) if pair[1] > -math.inf) for row in rows]

    return [Ranked(model, drawn) for model, drawn in zip(top(logp_NV), top(scores_NV), strict=True)]
