"""How well a key fits a query, by their inner product.

    a(s, h_i) = sᵀ h_i

Luong, Pham & Manning 2015, §3.1, "dot" (papers.bib: luong2015effective).
"""

from __future__ import annotations

from torch import Tensor, nn


class DotScore(nn.Module):
    """The score without weights: queries and keys must have the same width."""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        if query_width != memory_width:
            raise ValueError(
                f"an inner product needs two vectors of one width, but the query has {query_width} and what "
                f"it looks at {memory_width}: choose the bilinear score, or make the widths equal"
            )

    def keys(self, memory_NSE: Tensor) -> Tensor:
        """As they are."""
        return memory_NSE

    def forward(self, query_NWD: Tensor, keys_NSD: Tensor) -> Tensor:
        """(N, W, D), (N, S, D) → (N, W, S)."""
        return query_NWD @ keys_NSD.transpose(1, 2)
