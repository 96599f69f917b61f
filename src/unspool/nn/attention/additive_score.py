"""How well a key fits a query, by a small network.

    a(s, h_i) = vᵀ tanh(W s + U h_i)

Bahdanau, Cho & Bengio 2015, §A.1.2 (papers.bib: bahdanau2015neural). U h_i is computed once for each source.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unspool.nn.linear import Linear


class AdditiveScore(nn.Module):
    """Bahdanau's score. It works for queries and keys of any widths."""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.query = Linear(query_width, query_width)
        self.key = Linear(memory_width, query_width, bias=True)
        self.score = Linear(query_width, 1)

    def keys(self, memory_NSE: Tensor) -> Tensor:
        """(N, S, E) → (N, S, A)."""
        keys: Tensor = self.key(memory_NSE)
        return keys

    def forward(self, query_NWD: Tensor, keys_NSA: Tensor) -> Tensor:
        """(N, W, D), (N, S, A) → (N, W, S)."""
        query_NWA: Tensor = self.query(query_NWD)
        fits: Tensor = self.score(torch.tanh(query_NWA.unsqueeze(2) + keys_NSA.unsqueeze(1))).squeeze(-1)
        return fits
