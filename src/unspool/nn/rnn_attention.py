"""The context vector of a recurrent decoder: the last or mean encoder state, or attention over the source.

    last        c = h_n                                               Cho et al. 2014, eq. 3
    mean        c = 1/n Σ_i h_i
    attention   c_t = Σ_i α_ti h_i,   α_t = softmax_i a(s_{t−1}, h_i)    Bahdanau et al. 2015, eq. 4–6

papers.bib: cho2014learning, bahdanau2015neural. In a bidirectional encoder the last state of ←h is its
first vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from unspool.nn.linear import Linear


class AdditiveScore(nn.Module):
    """Bahdanau's additive score, a small network; queries and keys may have any widths.

        a(s, h_i) = vᵀ tanh(W s + U h_i)

    Bahdanau, Cho & Bengio 2015, §A.1.2 (papers.bib: bahdanau2015neural). U h_i is computed once per source.
    """

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


class DotScore(nn.Module):
    """Luong's dot score, the inner product; queries and keys must have the same width.

        a(s, h_i) = sᵀ h_i

    Luong, Pham & Manning 2015, §3.1, "dot" (papers.bib: luong2015effective).
    """

    def __init__(self, query_width: int, memory_width: int) -> None:  # noqa: ARG002
        super().__init__()

    def keys(self, memory_NSE: Tensor) -> Tensor:
        """The memory itself."""
        return memory_NSE

    def forward(self, query_NWD: Tensor, keys_NSD: Tensor) -> Tensor:
        """(N, W, D), (N, S, D) → (N, W, S)."""
        return query_NWD @ keys_NSD.transpose(1, 2)


class BilinearScore(DotScore):
    """Luong's general score, a learnt bilinear form; queries and keys may have any widths.

        a(s, h_i) = sᵀ W h_i

    Luong, Pham & Manning 2015, §3.1, "general" (papers.bib: luong2015effective). W h_i is computed once per
    source.
    """

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__(query_width, query_width)
        self.key = Linear(memory_width, query_width)

    def keys(self, memory_NSE: Tensor) -> Tensor:
        """(N, S, E) → (N, S, D)."""
        keys: Tensor = self.key(memory_NSE)
        return keys


ATTENTION_SCORES: dict[str, type[AdditiveScore] | type[BilinearScore] | type[DotScore]] = {
    "additive": AdditiveScore,
    "bilinear": BilinearScore,
    "dot": DotScore,
}


Score = Callable[[Tensor, Tensor], Tensor]
"""Scores of keys for queries: (N, W, D), (N, S, K) → (N, W, S)."""


def last_context(memory_NSE: Tensor, lengths_N: Tensor, bidirectional: bool) -> Tensor:
    """(N, E): the last →h of every row and, if bidirectional, the first ←h."""
    rows_N = torch.arange(len(memory_NSE), device=memory_NSE.device)
    end_NE = memory_NSE[rows_N, lengths_N - 1]
    if not bidirectional:
        return end_NE
    half = memory_NSE.shape[-1] // 2
    return torch.cat((end_NE[:, :half], memory_NSE[:, 0, half:]), dim=-1)


def mean_context(memory_NSE: Tensor, lengths_N: Tensor) -> Tensor:
    """(N, E): the mean over positions that are not padding."""
    real_NS = torch.arange(memory_NSE.shape[1], device=memory_NSE.device) < lengths_N[:, None]
    return (memory_NSE * real_NS[..., None]).sum(dim=1) / lengths_N[:, None]


def padding_mask(lengths_N: Tensor, longest: int, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """(N, S): −∞ on padding and 0 elsewhere, to be added to scores; None if there is no padding."""
    if bool((lengths_N == longest).all()):
        return None
    pad_NS = torch.arange(longest, device=lengths_N.device) >= lengths_N[:, None]
    return torch.zeros(pad_NS.shape, dtype=dtype, device=lengths_N.device).masked_fill_(pad_NS, -math.inf)


def attend(
    score: Score, query_NWD: Tensor, keys_NSK: Tensor, memory_NSE: Tensor, padding_NS: Tensor | None
) -> tuple[Tensor, Tensor]:
    """c (N, W, E) and α (N, W, S) of W queries that share a source."""
    score_NWS = score(query_NWD, keys_NSK)
    if padding_NS is not None:
        score_NWS = score_NWS + padding_NS.unsqueeze(1)
    alpha_NWS = score_NWS.softmax(dim=-1)
    return alpha_NWS @ memory_NSE, alpha_NWS
