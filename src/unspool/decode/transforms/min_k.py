"""Min-k: cut at the cliff of the sorted logits, the steepest step from one rank to the next.

    w_i = (l₍ᵢ₎ − l₍ᵢ₊₁₎) / (i · R),   R = l₍₁₎ − l₍ₙ₎,   l₍₁₎ ≥ l₍₂₎ ≥ …
    keep the first k ranks,   k = max( argmax_i w_i , ⌊τ / R⌋ )

Ding, Li, Garces Arias, Aßenmacher, Heumann & Zhang 2026 (algorithm 1).
papers.bib: ding2026mink

Steps near the top weigh more, by 1/i. A temperature divides all steps and R alike, so the cliff does not move
with it; ⌊τ/R⌋ does: put MinK before Temperature, as the authors do. It keeps a row that is almost flat from
losing all tokens but one; τ = 0 is the cliff alone.
Ties: of equal steps the first is the cliff, and the n tokens are those that no rule has cut, ranked by id
among equals, the lower first. A uniform row (R = 0) is kept whole.
Differs from the paper: it adds 10⁻⁸ to R.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.rank_cuts import ascending, edges, first
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class MinK(Truncation):
    """Keep the tokens above the steepest fall of the sorted logits."""

    tau: float = 3.0

    def __post_init__(self) -> None:
        advice = "The paper uses 3, and finds 1 … 10 alike; 0 leaves nothing but the cliff."
        number(self, "tau", at_least=0, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the ranks above the cliff."""
        logp_NV = precise(logp_NV)
        alive_NV = alive(logp_NV)
        left_N = alive_NV.sum(dim=-1)
        last_N1 = logp_NV.masked_fill(~alive_NV, torch.inf).amin(dim=-1, keepdim=True).double()
        range_N = (logp_NV.amax(dim=-1, keepdim=True) - last_N1)[:, 0]
        fallback_N = torch.minimum((self.tau / range_N).nan_to_num(posinf=torch.inf), left_N).long()
        fallback_N = torch.where(range_N == 0, left_N, fallback_N)

        def head(logp_NK: Tensor, _: Tensor) -> Tensor:
            K = logp_NK.shape[1]
            cliff_N, steepest_N = _cliff(logp_NK.double())
            # No step beyond rank K weighs more than all that is left to fall, at once, at rank K.
            decided_N = steepest_N >= (logp_NK[:, -1].double() - last_N1[:, 0]) / K
            count_N = torch.maximum(cliff_N, fallback_N)
            return torch.where(decided_N & (count_N <= K), count_N, 0)

        def whole(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            logp_RV = ascending(logp_NV[rows_R]).flip(-1)
            count_R = torch.maximum(_cliff(logp_RV.double())[0], fallback_N[rows_R])
            return logp_RV.gather(1, count_R[:, None] - 1), count_R

        return first(logp_NV, *edges(logp_NV, head, whole)) & alive_NV


def _cliff(sorted_NK: Tensor) -> tuple[Tensor, Tensor]:
    """The rank i of the largest step divided by i, and that; steps to tokens that were cut are none."""
    if sorted_NK.shape[1] < 2:
        return torch.ones(len(sorted_NK), dtype=torch.long), sorted_NK.new_zeros(len(sorted_NK))
    step_NK = -sorted_NK.diff(dim=-1)
    step_NK = step_NK.masked_fill(~torch.isfinite(step_NK), 0)
    rank_K = torch.arange(1, sorted_NK.shape[1], device=sorted_NK.device)
    steepest_N, place_N = (step_NK / rank_K).max(dim=-1)
    return place_N + 1, steepest_N
