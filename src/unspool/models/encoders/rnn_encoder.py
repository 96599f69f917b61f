"""A recurrent encoder, in one direction or both.

    h_t = RNN(x_t, h_{t−1});   in both directions h_t = [→h_t ; ←h_t]

Schuster & Paliwal 1997 (papers.bib: schuster1997bidirectional); Bahdanau et al. 2015, §3.2
(papers.bib: bahdanau2015neural).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from unspool.config import typed
from unspool.models.shape_checks import at_least_one, one_of, shares
from unspool.nn.attention.context import last
from unspool.nn.rnn import CELLS


@dataclass(frozen=True, kw_only=True)
class RNNEncoderConfig:
    """The shape of a recurrent encoder."""

    width: int
    """Of the embedding, and of each direction."""
    layers: int = 1
    cell: str = "gru"
    bidirectional: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        typed(self)
        one_of(self, cell=CELLS)
        at_least_one(self, "width", "layers")
        shares(self, "dropout")

    def build(self, embed: nn.Embedding) -> RNNEncoder:
        """An encoder that reads the vectors of this embedding."""
        return RNNEncoder(self, embed)


class RNNEncoder(nn.Module):
    """Reads tokens one after another. It owns no embedding: that is the model's."""

    def __init__(self, config: RNNEncoderConfig, embed: nn.Embedding) -> None:
        super().__init__()
        c = self.config = config
        self._embed = (embed,)  # in a tuple, so that torch does not register the embedding twice
        self.dropout = nn.Dropout(c.dropout)
        self.rnn = CELLS[c.cell](
            embed.embedding_dim, c.width, c.layers, dropout=c.dropout, bidirectional=c.bidirectional
        )

    @property
    def context(self) -> None:
        """There is no limit."""
        return

    @property
    def out_width(self) -> int:
        """Of the vector of each token."""
        return self.rnn.out_width

    def forward(self, tokens_NS: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, S) → (N, S, E); rows are padded on the right, and what is said about padding is 0."""
        memory_NSE, _ = self.rnn.read(self.dropout(self._embed[0](tokens_NS)), lengths_N=lengths_N)
        dropped: Tensor = self.dropout(memory_NSE)
        return dropped

    def summary(self, memory_NSE: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, E): what each direction says at its own end."""
        return last(memory_NSE, lengths_N, self.config.bidirectional)
