"""Locally typical sampling: keep the tokens whose surprise is nearest to the expected one.

    rank x by |−log p(x) − H|,   H = −Σ p log p;   keep the first whose mass together reaches τ

Meister, Pimentel, Wiher & Cotterell 2023 (the constrained problem that defines the truncation set).
papers.bib: meister2023typical

The most probable token may be cut: where the model is unsure, the best guess is untypically unsurprising.
τ = 1 keeps everything.
Ties: all tokens as far from H as the last one kept stay, so that the set may be larger than the smallest one
(as in Hugging Face, whose kept set this is).

The tokens are not sorted: the first few hundred decide, unless the boundary is closer to a token than the
rounding errors of a long sum, where the plain definition is evaluated: in the precision of the scores, as
other tools do, but in double precision where τ is so near to 1 that float32 would round the last tokens off.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.rank_cuts import HEAD, edges, rounding
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation

FINE = 64
"""How many times the rounding of a float32 sum 1 − τ must be, for that sum to tell where τ is reached."""


@dataclass(frozen=True)
class Typical(Truncation):
    """Keep the tokens of nearly expected surprise, of mass tau together."""

    tau: float = 0.95

    def __post_init__(self) -> None:
        advice = "Common values are 0.2 … 0.95; 1 keeps everything."
        number(self, "tau", above=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the locally typical set of each row."""
        if self.tau == 1:
            return alive(logp_NV)
        scores_NV = precise(logp_NV)
        V = scores_NV.shape[1]
        logp_NV = scores_NV.log_softmax(dim=-1)
        p_NV = logp_NV.exp()
        entropy_N1 = -(logp_NV * p_NV).nansum(dim=-1, keepdim=True)
        distance_NV = (-logp_NV - entropy_N1).abs()

        summed_in = torch.float64 if 1 - self.tau < FINE * rounding(V) else scores_NV.dtype

        def head(_: Tensor, token_NK: Tensor) -> Tensor:
            total_N1 = p_NV.sum(dim=-1, keepdim=True, dtype=torch.float64)
            upto_NK = p_NV.gather(1, token_NK).double().cumsum(dim=-1) / total_N1
            count_N = (upto_NK < self.tau).sum(dim=-1) + 1
            unsure_N = ((upto_NK - self.tau).abs() <= self.tau * rounding(V)).any(dim=-1)
            return count_N.masked_fill(unsure_N | (count_N > HEAD), 0)

        def whole(rows_R: Tensor) -> tuple[Tensor, Tensor]:
            distance_RV, token_RV = distance_NV[rows_R].sort(dim=-1)
            upto_RV = scores_NV[rows_R].to(summed_in).gather(1, token_RV).softmax(dim=-1).cumsum(dim=-1)
            last_R1 = (upto_RV < self.tau).sum(dim=-1, keepdim=True).clamp(max=V - 1)
            return -distance_RV.gather(1, last_R1), last_R1[:, 0] + 1

        edge_N1, _ = edges(-distance_NV, head, whole)
        return (-distance_NV >= edge_N1) & alive(logp_NV)
