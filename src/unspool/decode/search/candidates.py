"""Candidates of beam search: the best continuations of every beam, found for all beams at once.

    best_c { σ_j + s_j(v) :  j a live hypothesis of the beam,  v a token }

σ is the sum of the scores of a hypothesis. The c best of a beam are among the c best of its rows, so that
only c entries of every row are added to the sums, in double precision.

Ties: of equal sums the smaller (hypothesis, token id) is first, on every device. This module is the torch
implementation; if numba is installed, compiled code gives the same result (`engine.best_tokens`).

Shapes: N rows (the live hypotheses, one beam after the other), Q beams, V vocabulary, K best of a row,
C candidates of a beam, F fields of a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unspool.decode.fast_sampling import best_tokens, can_compile
from unspool.decode.hypothesis import Ranked


class Candidate(NamedTuple):
    """A live hypothesis of a beam with one more token."""

    parent: int
    """Index of the live hypothesis that it continues."""
    token: int
    logp: float
    """log p of the token by the model, before any transform."""
    score: float
    """What the token adds to the sum."""
    total: float
    """The sum with the token."""
    covered: float
    """The coverage penalty if it ends with this token."""
    key: float
    """The key that orders candidates: the sum, or the sum with Gumbel noise."""


FIELDS = len(Candidate._fields)


def propose(
    beams: Sequence[Sequence[float]],
    count: int,
    logp_NV: Tensor,
    scores_NV: Tensor,
    *,
    keys_NV: Tensor | None = None,
    transform_keys: Callable[[Tensor], Tensor] | None = None,
    covered_N: Tensor | None = None,
) -> list[list[Candidate]]:
    """The `count` best continuations of every beam, best first; fewer if fewer are possible.

    `beams` holds the sums of the live hypotheses of each beam. If `keys_NV` is given, candidates are chosen
    and ordered by it instead of the scores (Gumbel noise), but the sums are of the scores; `transform_keys`
    maps the highest keys of every row, (N, K), and keeps their order.
    """
    keys_NV = scores_NV if keys_NV is None else keys_NV
    k = min(count, scores_NV.shape[1])
    covered: list[float] = [] if covered_N is None else covered_N.tolist()
    compiled = best_tokens(keys_NV, k) if transform_keys is None and can_compile(logp_NV, scores_NV) else None
    if compiled is not None:
        from unspool.engine.best_tokens import rank_beams  # needs numba

        read = (tensor.detach().contiguous().numpy() for tensor in (*compiled, logp_NV, scores_NV))
        return [_read_candidates(fields) for fields in rank_beams(beams, count, covered, *read)]
    keys_NK, tokens_NK = highest(keys_NV, k)
    keys_NK = keys_NK if transform_keys is None else transform_keys(keys_NK)
    columns = tokens_NK, logp_NV.gather(1, tokens_NK), scores_NV.gather(1, tokens_NK), keys_NK
    rows = iter(torch.stack([column.double() for column in columns], dim=-1).tolist())
    candidates, covered_rows = [], iter(covered or [0.0] * len(scores_NV))
    for totals in beams:
        flat: list[tuple[float, ...]] = []
        for parent, total in enumerate(totals):
            penalty = next(covered_rows)
            flat += [
                (parent, token, logp, score, total + score, penalty, total + key)
                for token, logp, score, key in next(rows)
            ]
        # NaN first, so that it is refused. The sort is stable: of equal keys the first hypothesis and token.
        flat.sort(key=lambda fields: -math.inf if math.isnan(fields[-1]) else -fields[-1])
        candidates.append(_read_candidates([number for fields in flat[:count] for number in fields]))
    return candidates


def highest(keys_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest keys of every row, best first, with their tokens; of equal keys the smallest tokens."""
    if k == keys_NV.shape[1]:
        return keys_NV.sort(dim=-1, descending=True, stable=True)
    values_NK, tokens_NK = keys_NV.topk(k + 1)
    next_N = values_NK[:, k]
    edge_N, tokens_NK = values_NK[:, k - 1], tokens_NK[:, :k]
    if bool(((next_N == edge_N) & (next_N > -math.inf)).any()):  # ties at the edge: the slow way
        above_NV, level_NV = keys_NV > edge_N[:, None], keys_NV == edge_N[:, None]
        room_N1 = k - above_NV.sum(dim=-1, keepdim=True)
        kept_NV = above_NV | (level_NV & (level_NV.cumsum(dim=-1) <= room_N1))
        tokens_NK = kept_NV.nonzero()[:, 1].view(-1, k)
    tokens_NK = tokens_NK.sort(dim=-1).values
    values_NK, order_NK = keys_NV.gather(1, tokens_NK).sort(dim=-1, descending=True, stable=True)
    return values_NK, tokens_NK.gather(1, order_NK)


def _read_candidates(flat: Sequence[float]) -> list[Candidate]:
    """Candidates from their fields, one after the other; impossible ones are left out."""
    candidates = []
    for at in range(0, len(flat), FIELDS):
        parent, token, logp, score, total, covered, key = flat[at : at + FIELDS]
        if math.isnan(total):
            raise ValueError(
                f"token {int(token)} has the score {score}: the model or a transform returned NaN; "
                "check its weights and its precision"
            )
        if total > -math.inf:
            candidates.append(Candidate(int(parent), int(token), logp, score, total, covered, key))
    return candidates


def alternatives(logp_NV: Tensor, scores_NV: Tensor, count: int) -> Sequence[Ranked | None]:
    """The `count` most probable tokens of every row, by the model and by the transformed scores.

    If `count` is 0, every row has None.
    """
    if not count:
        return [None] * len(logp_NV)

    def top(values_NV: Tensor) -> list[tuple[tuple[int, float], ...]]:
        k = min(count, values_NV.shape[1])
        values_NK, tokens_NK = best_tokens(values_NV, k) or highest(values_NV, k)
        rows = zip(tokens_NK.tolist(), values_NK.tolist(), strict=True)
        return [tuple(pair for pair in zip(*row, strict=True) if pair[1] > -math.inf) for row in rows]

    return [Ranked(model, drawn) for model, drawn in zip(top(logp_NV), top(scores_NV), strict=True)]
