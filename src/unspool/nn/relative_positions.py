"""How far apart two tokens are, as a number that is added to their score.

    α[k,t,s] = softmax_s( Q[k,t]·K[k,s] / √I + b[k, bucket(s − t)] )

Raffel et al. 2020, §2.1 (T5, papers.bib: raffel2020exploring). Of the B buckets of one direction the first
B/2 hold one distance each, the others ever more of them, up to the distance M; the last has all the rest:

    bucket(d) = d  where d < B/2,   else min(B − 1, B/2 + ⌊B/2 · ln(d / (B/2)) / ln(M / (B/2))⌋)

A causal model looks in one direction; otherwise each direction has half of the buckets. One table serves all
layers. Symbols: B `buckets`, M `distance`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RelativePositions(nn.Module):
    """A number for every head and every bucket of distances."""

    def __init__(self, heads: int, buckets: int, distance: int, *, causal: bool) -> None:
        super().__init__()
        self.buckets, self.distance, self.causal = buckets, distance, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.weight, std=0.1)

    def forward(self, first: int, new: int) -> Tensor:
        """(1, H, new, first + new): what is added to the scores of so many tokens behind `first` others.

        −∞ where a causal model may not look.
        """
        device = self.weight.device
        query_T1 = torch.arange(first, first + new, device=device)[:, None]
        ahead_TS = torch.arange(first + new, device=device) - query_T1
        bias_HTS = F.embedding(self.bucket(ahead_TS), self.weight).permute(2, 0, 1)
        if self.causal and new > 1:
            bias_HTS = bias_HTS.masked_fill(ahead_TS > 0, -math.inf)
        return bias_HTS.unsqueeze(0)

    def bucket(self, ahead: Tensor) -> Tensor:
        """Of tokens that stand so many places ahead; those behind are negative."""
        if self.causal:
            return self._bucket((-ahead).clamp(min=0), self.buckets)
        half = self.buckets // 2
        return self._bucket(ahead.abs(), half) + half * (ahead > 0)

    def _bucket(self, distance: Tensor, buckets: int) -> Tensor:
        exact = buckets // 2
        # In single precision and in this order, as T5's own code: a rounding decides about the bucket.
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        grown = exact + (far * (buckets - exact)).long()
        return torch.where(distance < exact, distance, grown.clamp(max=buckets - 1))
