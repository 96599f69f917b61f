"""Recurrent networks: multi-layer GRU and LSTM, for whole sequences and step by step.

    GRU    r, z = σ(W x_t + U h_{t−1}),   n = tanh(W x_t + r ⊙ U h_{t−1}),   h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}
    LSTM   i, f, o = σ(W x_t + U h_{t−1}),   g = tanh(W x_t + U h_{t−1}),
           c_t = f ⊙ c_{t−1} + i ⊙ g,   h_t = o ⊙ tanh(c_t)

Cho et al. 2014, eq. 5–8 (papers.bib: cho2014learning); Hochreiter & Schmidhuber 1997, with the forget gate
of Gers et al. 2000, §3 (papers.bib: hochreiter1997long, gers2000learning). The input of layer j is the
output of layer j − 1. Bidirectional: h_t = [→h_t ; ←h_t], Schuster & Paliwal 1997 (papers.bib:
schuster1997bidirectional).

`read` processes whole sequences, `step` one token, with the same weights. The state is one tensor (N, L,
S): S = H for a GRU, and 2H for an LSTM, [h ; c]. Differs from Cho et al.: the reset gate applies to U h
instead of h, and z weighs the old state instead of the new one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unspool.nn.linear import linear


class Recurrent(nn.Module, ABC):
    """Base class of GRU and LSTM: torch's pass over whole sequences, and single steps with its weights."""

    kind: Any
    """The network of torch."""
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
        self.width, self.layers, self.dropout, self.bidirectional = width, layers, between, bidirectional

    @property
    def out_width(self) -> int:
        """The width of the output of `read`."""
        return self.width * (2 if self.bidirectional else 1)

    @property
    def state_width(self) -> int:
        """The width S of the state of a layer."""
        return self.width * self.parts

    def read(
        self, x_NTE: Tensor, state_NLS: Tensor | None = None, lengths_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(N, T, E) → (N, T, H or 2H), and the state (N, L, S) at the end of every row.

        With lengths, positions after the end of a row are skipped and their output is 0. A bidirectional
        state has 2L layers: → and ← of the first layer, then of the second, and so on.
        """
        begin = None if state_NLS is None else self._split(state_NLS)
        if lengths_N is None:
            out_NTH, end = self.net(x_NTE, begin)
        else:
            packed = pack_padded_sequence(x_NTE, lengths_N.cpu(), batch_first=True, enforce_sorted=False)
            packed_out, end = self.net(packed, begin)
            out_NTH, _ = pad_packed_sequence(packed_out, batch_first=True, total_length=x_NTE.shape[1])
        return out_NTH, self._join(end)

    def step(self, x_NE: Tensor, state_NLS: Tensor) -> tuple[Tensor, Tensor]:
        """One token: (N, E) → (N, H), and the new state."""
        return self.step_from(self.gates(0, x_NE), state_NLS)

    def step_from(self, gates_NG: Tensor, state_NLS: Tensor) -> tuple[Tensor, Tensor]:
        """`step`, given W x_t + b of the first layer."""
        first_NS, *others = state_NLS.unbind(1)
        out_NH, first_NS = self.advance(0, gates_NG, first_NS)
        states = [first_NS]
        for layer, state_NS in enumerate(others, start=1):
            if self.training and self.dropout:
                out_NH = F.dropout(out_NH, self.dropout)
            out_NH, state_NS = self.advance(layer, self.gates(layer, out_NH), state_NS)
            states.append(state_NS)
        return out_NH, torch.stack(states, dim=1)

    def gates(self, layer: int, x_NE: Tensor) -> Tensor:
        """W x_t + b of one layer: (…, E) → (…, G)."""
        weight, bias = self.weights(layer, "ih")
        return linear(x_NE, weight, bias)

    def recur(self, layer: int, h_NH: Tensor) -> Tensor:
        """U h_{t−1} + b of one layer: (N, H) → (N, G)."""
        weight, bias = self.weights(layer, "hh")
        return linear(h_NH, weight, bias)

    def weights(self, layer: int, which: str, *, backward: bool = False) -> tuple[Tensor, Tensor]:
        """W ("ih") or U ("hh") of one layer and its bias, forward or `backward`."""
        name = f"{which}_l{layer}{'_reverse' if backward else ''}"
        weight: Tensor = getattr(self.net, f"weight_{name}")  # torch's own names
        bias: Tensor = getattr(self.net, f"bias_{name}")
        return weight, bias

    def top(self, state_NLS: Tensor) -> Tensor:
        """(N, H): the output of the last layer."""
        return state_NLS[:, -1, : self.width]

    @abstractmethod
    def advance(self, layer: int, gates_NG: Tensor, state_NS: Tensor) -> tuple[Tensor, Tensor]:
        """One layer: h_t (N, H) and its state (N, S)."""

    @abstractmethod
    def _split(self, state_NLS: Tensor) -> Any:
        """Convert the state to the format of torch's network."""

    @abstractmethod
    def _join(self, end: Any) -> Tensor:
        """Convert it back."""


class GRU(Recurrent):
    """Gated recurrent units."""

    kind, parts = nn.GRU, 1

    def advance(self, layer: int, gates_NG: Tensor, state_NS: Tensor) -> tuple[Tensor, Tensor]:
        """h_t, which is also the state."""
        H = self.width
        recur_NG = self.recur(layer, state_NS)
        reset_NH, keep_NH = torch.sigmoid(gates_NG[:, : 2 * H] + recur_NG[:, : 2 * H]).chunk(2, dim=-1)
        new_NH = torch.tanh(torch.addcmul(gates_NG[:, 2 * H :], reset_NH, recur_NG[:, 2 * H :]))
        h_NH = torch.lerp(new_NH, state_NS, keep_NH)
        return h_NH, h_NH

    def _split(self, state_NLS: Tensor) -> Tensor:
        return state_NLS.transpose(0, 1).contiguous()

    def _join(self, end: Tensor) -> Tensor:
        return end.transpose(0, 1)


class LSTM(Recurrent):
    """Long short-term memory."""

    kind, parts = nn.LSTM, 2

    def advance(self, layer: int, gates_NG: Tensor, state_NS: Tensor) -> tuple[Tensor, Tensor]:
        """h_t, and [h_t ; c_t]."""
        h_NH, c_NH = state_NS.chunk(2, dim=-1)
        i_NH, f_NH, g_NH, o_NH = (gates_NG + self.recur(layer, h_NH)).chunk(4, dim=-1)
        c_NH = torch.addcmul(f_NH.sigmoid() * c_NH, i_NH.sigmoid(), g_NH.tanh())
        h_NH = o_NH.sigmoid() * c_NH.tanh()
        return h_NH, torch.cat((h_NH, c_NH), dim=-1)

    def _split(self, state_NLS: Tensor) -> Sequence[Tensor]:
        return tuple(part.contiguous() for part in state_NLS.transpose(0, 1).chunk(2, dim=-1))

    def _join(self, end: Sequence[Tensor]) -> Tensor:
        return torch.cat(tuple(end), dim=-1).transpose(0, 1)


CELLS: dict[str, type[GRU] | type[LSTM]] = {"gru": GRU, "lstm": LSTM}
