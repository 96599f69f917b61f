"""The best continuations of every beam, found for all beams at once and read by the host in one go.

    best_c { σ_j + s_j(v) :  j a live hypothesis of the beam,  v a token }

σ is the sum of a hypothesis's scores so far. The c best of a beam are among the c best of its rows, so that
the vocabulary is searched row by row and only c entries of every row meet the sums, in double precision.

Ties: of equal sums the smaller (hypothesis, token id) comes first, on every device. What is here is torch's
way; where numba is there, two calls of compiled code find the same (`decode/compiled`).

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
"""Tokens whose maximum is looked at before they are: a vocabulary is mostly blocks that hold nothing high."""


class Candidate(NamedTuple):
    """One hypothesis of a beam with one more token."""

    parent: int
    """Which live hypothesis of its beam it continues."""
    token: int
    logp: float
    """log p of the token by the model itself."""
    score: float
    """What the token adds to the sum."""
    total: float
    """The sum with the token."""
    covered: float
    """The coverage penalty that it has to pay if it ends with this token."""
    key: float
    """What it was ordered by: the sum, or its perturbed form."""


FIELDS = len(Candidate._fields)


def propose(
    beams: Sequence[Sequence[float]],
    count: int,
    logp_NV: Tensor,
    scores_NV: Tensor,
    *,
    keys_NV: Tensor | None = None,
    moved: Callable[[Tensor], Tensor] | None = None,
    covered_N: Tensor | None = None,
) -> list[list[Candidate]]:
    """The `count` best continuations of every beam, best first; fewer where fewer are possible.

    `beams` holds the sums of the live hypotheses of each beam. Where `keys_NV` is given, it takes the place
    of the scores in choosing and ordering (a sample draws by perturbed scores), but not in the sums; `moved`
    maps the highest keys of every row, (N, K), to those that count, keeping their order.
    """
    keys_NV = scores_NV if keys_NV is None else keys_NV
    k = min(count, scores_NV.shape[1])
    quick = best_tokens(keys_NV, k) if moved is None and can_compile(logp_NV, scores_NV) else None
    if quick is not None:
        return _merged(beams, count, *quick, logp_NV, scores_NV, covered_N)
    board = _Board.lay(beams, count, logp_NV, scores_NV, covered_N)
    for best in (highest, settled):
        values_NK, tokens_NK, tied_N = best(keys_NV, k)
        values_NK = values_NK if moved is None else moved(values_NK)
        found, tied = board.read(values_NK, tokens_NK, tied_N)
        if not tied:
            break
    return found


def _merged(
    beams: Sequence[Sequence[float]],
    count: int,
    values_NK: Tensor,
    tokens_NK: Tensor,
    logp_NV: Tensor,
    scores_NV: Tensor,
    covered_N: Tensor | None,
) -> list[list[Candidate]]:
    """The same of the best tokens of every row, ties among them in order, by compiled code."""
    from unspool.engine.best_tokens import ranked  # only where numba is there

    covered = () if covered_N is None else covered_N.tolist()
    read = (it.detach().contiguous().numpy() for it in (values_NK, tokens_NK, logp_NV, scores_NV))
    return [_candidates(fields) for fields in ranked(beams, count, covered, *read)]


def highest(keys_NV: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k highest of every row with their tokens, and (N) whether a tie leaves open which they are."""
    N, V = keys_NV.shape
    if k == V:
        values_NK, tokens_NK = keys_NV.sort(dim=-1, descending=True, stable=True)
        return values_NK, tokens_NK, torch.zeros(N, dtype=torch.bool, device=keys_NV.device)
    blocks = V // BLOCK
    if blocks <= 2 * k:
        values_NK, tokens_NK = keys_NV.topk(k + 1)
        next_N = values_NK[:, k]
    else:
        whole = blocks * BLOCK
        peak_NB = keys_NV[:, :whole].unfold(1, BLOCK, BLOCK).amax(dim=-1)
        peak_NK, block_NK = peak_NB.topk(k + 1)
        inside = torch.arange(BLOCK, device=keys_NV.device)
        seen_NS = (block_NK[:, :k, None] * BLOCK + inside).flatten(1)
        rest_S = torch.arange(whole, V, device=keys_NV.device)
        seen_NS = torch.cat([seen_NS, rest_S.expand(N, -1)], dim=1)
        values_NK, at_NK = keys_NV.gather(1, seen_NS).topk(k + 1)
        tokens_NK = seen_NS.gather(1, at_NK)
        next_N = torch.maximum(values_NK[:, k], peak_NK[:, k])
    values_NK, tokens_NK = values_NK[:, :k], tokens_NK[:, :k]
    tied_N = (next_N == values_NK[:, -1]) & (next_N > -math.inf)
    return *_ordered(values_NK, tokens_NK), tied_N


def settled(keys_NV: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `highest`, and of equal keys at the edge the smallest tokens: a few more passes over the rows."""
    edge_N1 = keys_NV.topk(k).values[:, -1:]
    above_NV, level_NV = keys_NV > edge_N1, keys_NV == edge_N1
    room_N1 = k - above_NV.sum(dim=-1, keepdim=True)
    kept_NV = above_NV | (level_NV & (level_NV.cumsum(dim=-1) <= room_N1))
    tokens_NK = kept_NV.nonzero()[:, 1].view(-1, k)
    tied_N = torch.zeros(len(keys_NV), dtype=torch.bool, device=keys_NV.device)
    return *_ordered(keys_NV.gather(1, tokens_NK), tokens_NK), tied_N


def _ordered(values_NK: Tensor, tokens_NK: Tensor) -> tuple[Tensor, Tensor]:
    tokens_NK, by_token_NK = tokens_NK.sort(dim=-1)
    values_NK, order_NK = values_NK.gather(1, by_token_NK).sort(dim=-1, descending=True, stable=True)
    return values_NK, tokens_NK.gather(1, order_NK)


@dataclass(frozen=True)
class _Board:
    """Where the rows of every beam stand, and what is known of them."""

    sums_N: Tensor
    slot_N: Tensor
    """The place of every row on a board that has the width of the widest beam for each."""
    first_Q: Tensor
    """The first row of every beam."""
    widest: int
    count: int
    logp_NV: Tensor
    scores_NV: Tensor
    covered_N: Tensor | None

    @classmethod
    def lay(
        cls,
        beams: Sequence[Sequence[float]],
        count: int,
        logp_NV: Tensor,
        scores_NV: Tensor,
        covered_N: Tensor | None,
    ) -> _Board:
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
        """The candidates of every beam on the host, and whether a tie has to be settled first."""
        ranked_QCF = self.rank(values_NK, tokens_NK)
        # The flag travels with the candidates: one transfer a step, a second one only where it is raised.
        *flat, tied = torch.cat([ranked_QCF.flatten(), tied_N.any()[None].double()]).tolist()
        size = ranked_QCF[0].numel()
        found = [_candidates(flat[at : at + size]) for at in range(0, len(flat), size)]
        return found, bool(tied)

    def rank(self, values_NK: Tensor, tokens_NK: Tensor) -> Tensor:
        """(Q, C, F): the fields of the best candidates of every beam."""
        N, k = values_NK.shape
        Q = len(self.first_Q)
        board = self.sums_N.new_full((Q * self.widest, k), -math.inf)
        board[self.slot_N] = values_NK + self.sums_N[:, None]
        board_QS = board.view(Q, self.widest * k)
        key_QS, order_QS = board_QS.sort(dim=-1, descending=True, stable=True)
        key_QC, order_QC = key_QS[:, : self.count], order_QS[:, : self.count]
        parent_QC = order_QC // k
        # An empty place of a beam that is not full points at some row; its key keeps it out.
        row_QC = (self.first_Q[:, None] + parent_QC).clamp(max=N - 1)
        token_QC = tokens_NK[row_QC, order_QC % k]
        score_QC = self.scores_NV[row_QC, token_QC].double()
        total_QC = (self.sums_N[row_QC] + score_QC).masked_fill(key_QC == -math.inf, -math.inf)
        logp_QC = self.logp_NV[row_QC, token_QC].double()
        covered_QC = torch.zeros_like(total_QC) if self.covered_N is None else self.covered_N[row_QC].double()
        fields = [parent_QC.double(), token_QC.double(), logp_QC, score_QC, total_QC, covered_QC, key_QC]
        return torch.stack(fields, dim=-1)


def _candidates(flat: Sequence[float]) -> list[Candidate]:
    found = []
    for at in range(0, len(flat), FIELDS):
        parent, token, logp, score, total, covered, key = flat[at : at + FIELDS]
        if math.isnan(total):
            raise ValueError(
                f"token {int(token)} has the score {score}, which cannot be ranked. "
                "The model or a transform gave NaN: check its weights and its numeric precision."
            )
        if total > -math.inf:
            found.append(Candidate(int(parent), int(token), logp, score, total, covered, key))
    return found


def alternatives(logp_NV: Tensor, scores_NV: Tensor, count: int) -> list[Ranked]:
    """The `count` most probable tokens of every row, by the model itself and by what is ranked.

    What else a token might have been: the most probable ones of every row.

    Twice, because they are two questions: what the model itself found probable, and what was left to draw
    from.
    """

    def top(values_NV: Tensor) -> list[tuple[tuple[int, float], ...]]:
        k = min(count, values_NV.shape[1])
        values_NK, tokens_NK = best_tokens(values_NV, k) or settled(values_NV, k)[:2]
        rows = zip(tokens_NK.tolist(), values_NK.tolist(), strict=True)
        return [tuple(pair for pair in zip(*row, strict=True) if pair[1] > -math.inf) for row in rows]

    return [Ranked(model, drawn) for model, drawn in zip(top(logp_NV), top(scores_NV), strict=True)]
