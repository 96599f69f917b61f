"""Top-p, nucleus sampling: keep the smallest set of tokens whose probability reaches p.

    V⁽ᵖ⁾ = argmin |S|  such that  Σ_{x∈S} p(x) ≥ p
    keep x  ⇔  the mass ranked strictly before x is < p  ⇔  the mass ranked from x on is > 1 − p

Holtzman, Buys, Du, Forbes & Choi 2020, §3.1, eq. (2).
papers.bib: holtzman2020curious

The most probable token always stays. p = 1 keeps everything.
Ties: where the boundary falls among equally probable tokens, those with the lower ids stay, as many as
needed.

The masses are compared in the precision of the scores, as Hugging Face does, so that the same number of
tokens with the same probabilities survives; among tokens tied at the boundary, Hugging Face leaves the
choice to an unstable sort. It also cuts tokens whose probability underflows to 0 when p = 1.

The tokens are not sorted: the first few hundred decide, unless the boundary is closer to a token than the
rounding errors of a long sum, where the plain definition is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.rank_cuts import HEAD, ascending, edges, first, rounding
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class TopP(Truncation):
    """Keep the smallest set of tokens whose mass is at least p."""

    p: float = 0.9

    def __post_init__(self) -> None:
        advice = "p = 1 keeps everything; for the most probable token always, use Greedy()."
        number(self, "p", above=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the nucleus of each row."""
        if self.p == 1:
            return alive(logp_NV)
        logp_NV = precise(logp_NV)
        rest = 1 - self.p

        def head(_: Tensor, token_NK: Tensor) -> Tensor:
            p_NV = logp_NV.softmax(dim=-1)
            total_N1 = p_NV.sum(dim=-1, keepdim=True, dtype=torch.float64)
            p_NK = p_NV.gather(1, token_NK).double()
            from_here_NK = 1 - (p_NK.cumsum(dim=-1) - p_NK) / total_N1
            count_N = (from_here_NK > rest).sum(dim=-1)
            unsure_N = ((from_here_NK - rest).abs() <= rest * rounding(logp_NV.shape[1])).any(dim=-1)
            return count_N.masked_fill(unsure_N | (count_N == HEAD), 0)

        def whole(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            sorted_RV = ascending(logp_NV[rows_R])
            from_here_RV = sorted_RV.softmax(dim=-1).cumsum(dim=-1)
            count_R = (from_here_RV > rest).sum(dim=-1).clamp(min=1)
            return sorted_RV.gather(1, sorted_RV.shape[1] - count_R[:, None]), count_R

        return first(logp_NV, *edges(logp_NV, head, whole))
