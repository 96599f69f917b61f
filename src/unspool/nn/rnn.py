"""Recurrent networks: multi-layer GRU and LSTM, and the context vector of a recurrent decoder.

    GRU    r, z = σ(W x_t + U h_{t−1}),   n = tanh(W x_t + r ⊙ U h_{t−1}),   h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}
    LSTM   i, f, o = σ(W x_t + U h_{t−1}),   g = tanh(W x_t + U h_{t−1}),
           c_t = f ⊙ c_{t−1} + i ⊙ g,   h_t = o ⊙ tanh(c_t)

Cho et al. 2014, eq. 5–8 (papers.bib: cho2014learning); Hochreiter & Schmidhuber 1997, with the forget gate
of Gers et al. 2000, §3 (papers.bib: hochreiter1997long, gers2000learning). The input of layer j is the
output of layer j − 1. Bidirectional: h_t = [→h_t ; ←h_t], Schuster & Paliwal 1997 (papers.bib:
schuster1997bidirectional); the last state of ←h is its first vector. Context vectors: Cho et al. 2014, eq. 3;
Bahdanau et al. 2015, eq. 4–6 (papers.bib: bahdanau2015neural).

`read` processes whole sequences, `step` one token, with the same weights. The state is one tensor (N, L,
S): S = H for a GRU, and 2H for an LSTM, [h ; c]. Differs from Cho et al.: the reset gate applies to U h
instead of h, and z weighs the old state instead of the new one.

    last        c = h_n
    mean        c = 1/n Σ_i h_i
    attention   c_t = Σ_i α_ti h_i,   α_t = softmax_i a(s_{t−1}, h_i)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unspool.nn.linear import Linear


class Recurrent(nn.Module):
    """Base class of GRU and LSTM: torch's network with its state in one tensor."""

    kind: Any
    """The network of torch."""
    cell: Any
    """One step of one layer."""
    parts: int
    """The number of vectors of width H in the state of a layer."""

    def __init__(
        self, inputs: int, width: int, layers: int = 1, *, dropout: float = 0.0, bidirectional: bool = False
    ) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.net = self.kind(
            inputs, width, layers, batch_first=True, dropout=between, bidirectional=bidirectional
        )
        self.width, self.layers = width, layers
        self.out_width = width * (2 if bidirectional else 1)
        self.state_width = width * self.parts

    def read(
        self, x_NTE: Tensor, state_NLS: Tensor | None = None, lengths_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(N, T, E) → (N, T, H or 2H), and the state (N, L, S) at the end of every row.

        With lengths, positions after the end of a row are skipped and their output is 0. A bidirectional
        state has 2L layers: → and ← of the first layer, then of the second, and so on.
        """
        begin = None if state_NLS is None else self._split(state_NLS.transpose(0, 1))
        if lengths_N is None:
            out_NTH, end = self.net(x_NTE, begin)
        else:
            packed = pack_padded_sequence(x_NTE, lengths_N.cpu(), batch_first=True, enforce_sorted=False)
            packed_out, end = self.net(packed, begin)
            out_NTH, _ = pad_packed_sequence(packed_out, batch_first=True, total_length=x_NTE.shape[1])
        return out_NTH, self._join(end).transpose(0, 1)

    def step(self, x_NE: Tensor, state_NLS: Tensor) -> tuple[Tensor, Tensor]:
        """One token: (N, E) → (N, H), and the new state. torch's network is slow for one token of an LSTM."""
        states: list[Tensor] = []
        for state_NS, weights in zip(state_NLS.unbind(1), self.net.all_weights, strict=True):
            x_NE = F.dropout(x_NE, self.net.dropout, self.training and bool(states))
            states.append(self._join(self.cell(x_NE, self._split(state_NS), *weights)))
            x_NE = states[-1][:, : self.width]
        return x_NE, torch.stack(states, dim=1)

    def top(self, state_NLS: Tensor) -> Tensor:
        """(N, H): the output of the last layer."""
        return state_NLS[:, -1, : self.width]

    def _split(self, state: Tensor) -> Any:
        """The state in the format of torch: h, or h and c."""
        parts = [part.contiguous() for part in state.chunk(self.parts, dim=-1)]
        return parts[0] if self.parts == 1 else tuple(parts)

    def _join(self, end: Any) -> Tensor:
        return end if self.parts == 1 else torch.cat(end, dim=-1)


class GRU(Recurrent):
    """Gated recurrent units."""

    kind, cell, parts = nn.GRU, staticmethod(torch.gru_cell), 1


class LSTM(Recurrent):
    """Long short-term memory."""

    kind, cell, parts = nn.LSTM, staticmethod(torch.lstm_cell), 2


CELLS: dict[str, type[GRU] | type[LSTM]] = {"gru": GRU, "lstm": LSTM}


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
        return self.key(memory_NSE)

    def forward(self, query_NWD: Tensor, keys_NSA: Tensor) -> Tensor:
        """(N, W, D), (N, S, A) → (N, W, S)."""
        query_NWA: Tensor = self.query(query_NWD)
        return self.score(torch.tanh(query_NWA.unsqueeze(2) + keys_NSA.unsqueeze(1))).squeeze(-1)


class DotScore(nn.Module):
    """Luong's dot score, the inner product; queries and keys must have the same width.

        a(s, h_i) = sᵀ h_i

    Luong, Pham & Manning 2015, §3.1, "dot" (papers.bib: luong2015effective).
    """

    def __init__(self, query_width: int, memory_width: int) -> None:  # noqa: ARG002
        super().__init__()

    def keys(self, memory_NSE: Tensor) -> Tensor:
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
        return self.key(memory_NSE)


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
