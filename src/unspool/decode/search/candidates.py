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
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from unspool.decode.fast_sampling import best_tokens, can_compile
from unspool.decode.hypothesis import Ranked

BLOCK = 64
"""Tokens of a block. Only the blocks with the highest maxima are searched for the best tokens."""


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
    compiled = best_tokens(keys_NV, k) if transform_keys is None and can_compile(logp_NV, scores_NV) else None
    if compiled is not None:
        return _merge_compiled(beams, count, *compiled, logp_NV, scores_NV, covered_N)
    table = _BeamRows.build(beams, count, logp_NV, scores_NV, covered_N)
    for best in (highest, highest_with_ties):
        values_NK, tokens_NK, tied_N = best(keys_NV, k)
        values_NK = values_NK if transform_keys is None else transform_keys(values_NK)
        candidates, tied = table.read(values_NK, tokens_NK, tied_N)
        if not tied:
            break
    return candidates


def _merge_compiled(
    beams: Sequence[Sequence[float]],
    count: int,
    values_NK: Tensor,
    tokens_NK: Tensor,
    logp_NV: Tensor,
    scores_NV: Tensor,
    covered_N: Tensor | None,
) -> list[list[Candidate]]:
    """`propose` from the best tokens of every row, by compiled code."""
    from unspool.engine.best_tokens import rank_beams  # needs numba

    covered = () if covered_N is None else covered_N.tolist()
    read = (it.detach().contiguous().numpy() for it in (values_NK, tokens_NK, logp_NV, scores_NV))
    return [_candidates(fields) for fields in rank_beams(beams, count, covered, *read)]


def highest(keys_NV: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k highest keys of every row with their tokens, and (N) whether a tie makes the choice ambiguous."""
    N, V = keys_NV.shape
    if k == V:
        values_NK, tokens_NK = keys_NV.sort(dim=-1, descending=True, stable=True)
        return values_NK, tokens_NK, torch.zeros(N, dtype=torch.bool, device=keys_NV.device)
    blocks = V // BLOCK
    if blocks <= 2 * k:
        values_NK, tokens_NK = keys_NV.topk(k + 1)
        next_N = values_NK[:, k]
    else:
        in_blocks = blocks * BLOCK
        peak_NB = keys_NV[:, :in_blocks].unfold(1, BLOCK, BLOCK).amax(dim=-1)
        peak_NK, block_NK = peak_NB.topk(k + 1)
        inside = torch.arange(BLOCK, device=keys_NV.device)
        seen_NS = (block_NK[:, :k, None] * BLOCK + inside).flatten(1)
        rest_S = torch.arange(in_blocks, V, device=keys_NV.device)
        seen_NS = torch.cat([seen_NS, rest_S.expand(N, -1)], dim=1)
        values_NK, at_NK = keys_NV.gather(1, seen_NS).topk(k + 1)
        tokens_NK = seen_NS.gather(1, at_NK)
        next_N = torch.maximum(values_NK[:, k], peak_NK[:, k])
    values_NK, tokens_NK = values_NK[:, :k], tokens_NK[:, :k]
    tied_N = (next_N == values_NK[:, -1]) & (next_N > -math.inf)
    return *_sorted_by_key(values_NK, tokens_NK), tied_N


def highest_with_ties(keys_NV: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Like `highest`, but of equal keys at the edge the smallest tokens are chosen; slower."""
    edge_N1 = keys_NV.topk(k).values[:, -1:]
    above_NV, level_NV = keys_NV > edge_N1, keys_NV == edge_N1
    room_N1 = k - above_NV.sum(dim=-1, keepdim=True)
    kept_NV = above_NV | (level_NV & (level_NV.cumsum(dim=-1) <= room_N1))
    tokens_NK = kept_NV.nonzero()[:, 1].view(-1, k)
    tied_N = torch.zeros(len(keys_NV), dtype=torch.bool, device=keys_NV.device)
    return *_sorted_by_key(keys_NV.gather(1, tokens_NK), tokens_NK), tied_N


def _sorted_by_key(values_NK: Tensor, tokens_NK: Tensor) -> tuple[Tensor, Tensor]:
    tokens_NK, by_token_NK = tokens_NK.sort(dim=-1)
    values_NK, order_NK = values_NK.gather(1, by_token_NK).sort(dim=-1, descending=True, stable=True)
    return values_NK, tokens_NK.gather(1, order_NK)


@dataclass(frozen=True)
class _BeamRows:
    """The rows of every beam, laid out in a table with the width of the widest beam."""

    sums_N: Tensor
    slot_N: Tensor
    """Position of every row in the table."""
    first_Q: Tensor
    """The first row of every beam."""
    widest: int
    count: int
    logp_NV: Tensor
    scores_NV: Tensor
    covered_N: Tensor | None

    @classmethod
    def build(
        cls,
        beams: Sequence[Sequence[float]],
        count: int,
        logp_NV: Tensor,
        scores_NV: Tensor,
        covered_N: Tensor | None,
    ) -> _BeamRows:
        widest = max(map(len, beams))
        sums = [total for totals in beams for total in totals]
        slots = [beam * widest + place for beam, totals in enumerate(beams) for place in range(len(totals))]
        first = list(accumulate(map(len, beams), initial=0))[:-1]
        return cls(
            torch.tensor(sums, dtype=torch.float64, device=scores_NV.device),
            torch.tensor(slots, device=scores_NV.device),
            torch.tensor(first, device=scores_NV.device),
            widest,
            count,
            logp_NV,
            scores_NV,
            covered_N,
        )

    def read(
        self, values_NK: Tensor, tokens_NK: Tensor, tied_N: Tensor
    ) -> tuple[list[list[Candidate]], bool]:
        """The candidates of every beam as Python objects, and whether a tie must be resolved first."""
        ranked_QCF = self.rank(values_NK, tokens_NK)
        # The flag is transferred together with the candidates: one device transfer per step.
        *flat, tied = torch.cat([ranked_QCF.flatten(), tied_N.any()[None].double()]).tolist()
        size = ranked_QCF[0].numel()
        candidates = [_candidates(flat[at : at + size]) for at in range(0, len(flat), size)]
        return candidates, bool(tied)

    def rank(self, values_NK: Tensor, tokens_NK: Tensor) -> Tensor:
        """(Q, C, F): the fields of the best candidates of every beam."""
        N, k = values_NK.shape
        Q = len(self.first_Q)
        table = self.sums_N.new_full((Q * self.widest, k), -math.inf)
        table[self.slot_N] = values_NK + self.sums_N[:, None]
        table_QS = table.view(Q, self.widest * k)
        key_QS, order_QS = table_QS.sort(dim=-1, descending=True, stable=True)
        key_QC, order_QC = key_QS[:, : self.count], order_QS[:, : self.count]
        parent_QC = order_QC // k
        # An empty position of a beam points at some row; its key, −∞, excludes it.
        row_QC = (self.first_Q[:, None] + parent_QC).clamp(max=N - 1)
        token_QC = tokens_NK[row_QC, order_QC % k]
        score_QC = self.scores_NV[row_QC, token_QC].double()
        total_QC = (self.sums_N[row_QC] + score_QC).masked_fill(key_QC == -math.inf, -math.inf)
        logp_QC = self.logp_NV[row_QC, token_QC].double()
        covered_QC = torch.zeros_like(total_QC) if self.covered_N is None else self.covered_N[row_QC].double()
        fields = [parent_QC.double(), token_QC.double(), logp_QC, score_QC, total_QC, covered_QC, key_QC]
        return torch.stack(fields, dim=-1)


def _candidates(flat: Sequence[float]) -> list[Candidate]:
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


def alternatives(logp_NV: Tensor, scores_NV: Tensor, count: int) -> list[Ranked]:
    """The `count` most probable tokens of every row, by the model and by the transformed scores."""

    def top(values_NV: Tensor) -> list[tuple[tuple[int, float], ...]]:
        k = min(count, values_NV.shape[1])
        values_NK, tokens_NK = best_tokens(values_NV, k) or highest_with_ties(values_NV, k)[:2]
        rows = zip(tokens_NK.tolist(), values_NK.tolist(), strict=True)
        return [tuple(pair for pair in zip(*row, strict=True) if pair[1] > -math.inf) for row in rows]

    return [Ranked(model, drawn) for model, drawn in zip(top(logp_NV), top(scores_NV), strict=True)]
