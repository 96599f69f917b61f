"""Queries and keys normalised before they meet, so that no score grows without bound.

    head    q ← RMSNorm(q), k ← RMSNorm(k), each head by itself     Dehghani et al. 2023, §2 (Qwen 3, Gemma 3)
    whole   the same over all heads at once                         OLMo 2

papers.bib: dehghani2023scaling
Differs from the paper: RMSNorm instead of LayerNorm, as the language models named have it.
"""

from __future__ import annotations

from torch import Tensor

from unspool.nn.direct_call import DirectCall
from unspool.nn.norms import RMSNorm

KINDS = ("none", "head", "whole")


class QueryKeyNorm(DirectCall):
    """One gain for queries and one for keys: of a head's width, which all heads share, or of all of them."""

    def __init__(self, heads: int, kv_heads: int, head_width: int, eps: float, kind: str) -> None:
        super().__init__()
        self.whole = kind == "whole"
        self.query = RMSNorm(heads * head_width if self.whole else head_width, eps)
        self.key = RMSNorm(kv_heads * head_width if self.whole else head_width, eps)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(…, H, I) and (…, K, I) → the same shapes."""
        if not self.whole:
            return self.query(q), self.key(k)
        return self.query(q.flatten(-2)).view(q.shape), self.key(k.flatten(-2)).view(k.shape)
