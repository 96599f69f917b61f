"""How well a key fits a query, by an inner product that is learnt.

    a(s, h_i) = sᵀ W h_i

Luong, Pham & Manning 2015, §3.1, "general" (papers.bib: luong2015effective). W h_i is computed once for each
source.
"""

from __future__ import annotations

from torch import Tensor, nn

from unspool.nn.linear import Linear


class BilinearScore(nn.Module):
    """Luong's general score. It works for queries and keys of any widths."""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.key = Linear(memory_width, query_width)

    def keys(self, memory_NSE: Tensor) -> Tensor:
        """(N, S, E) → (N, S, D)."""
        keys: Tensor = self.key(memory_NSE)
        return keys

    def forward(self, query_NWD: Tensor, keys_NSD: Tensor) -> Tensor:
        """(N, W, D), (N, S, D) → (N, W, S)."""
        return query_NWD @ keys_NSD.transpose(1, 2)
