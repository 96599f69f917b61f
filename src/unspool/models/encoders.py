"""Recurrent and Transformer encoders: tokens → one contextual vector each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from unspool.arguments import integer, number
from unspool.models.model_config import ModelSettings
from unspool.models.transformer_shape import TransformerShape, TransformerStack, attention_padding
from unspool.nn.rnn import CELLS, last_context, mean_context


@dataclass(frozen=True, kw_only=True)
class RNNEncoderConfig(ModelSettings):
    """Settings of a recurrent encoder."""

    width: int = integer(at_least=1)
    """The width of the embedding and of each direction."""
    layers: int = integer(1, at_least=1)
    cell: Literal["gru", "lstm"] = "gru"
    bidirectional: bool = True
    dropout: float = number(0.0, at_least=0, below=1)

    def build(self, embed: nn.Embedding) -> RNNEncoder:
        return RNNEncoder(self, embed)


class RNNEncoder(nn.Module):
    """A recurrent encoder, unidirectional or bidirectional.

        h_t = RNN(x_t, h_{t−1});   in both directions h_t = [→h_t ; ←h_t]

    Schuster & Paliwal 1997 (papers.bib: schuster1997bidirectional); Bahdanau et al. 2015, §3.2
    (papers.bib: bahdanau2015neural).
    """

    context = None

    def __init__(self, config: RNNEncoderConfig, embed: nn.Embedding) -> None:
        super().__init__()
        c = self.config = config
        self._embed = (embed,)  # a tuple, so that torch does not register the embedding twice
        self.dropout = nn.Dropout(c.dropout)
        self.rnn = CELLS[c.cell](
            embed.embedding_dim, c.width, c.layers, dropout=c.dropout, bidirectional=c.bidirectional
        )
        self.out_width = self.rnn.out_width

    def forward(self, tokens_NS: Tensor, lengths_N: Tensor, attentions: None = None) -> Tensor:  # noqa: ARG002
        """(N, S) → (N, S, E) of right-padded rows; 0 on padding. There are no attention weights."""
        memory_NSE, _ = self.rnn.read(self.dropout(self._embed[0](tokens_NS)), lengths_N=lengths_N)
        return self.dropout(memory_NSE)

    def summary(self, memory_NSE: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, E): the final state of each direction."""
        return last_context(memory_NSE, lengths_N, self.config.bidirectional)


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(TransformerShape):
    """Settings of a Transformer encoder."""

    layers: int = integer(at_least=1)

    def build(self, embed: nn.Embedding) -> TransformerEncoder:
        return TransformerEncoder(self, self.layers, embed)


class TransformerEncoder(TransformerStack):
    """A Transformer encoder with bidirectional attention.

        h = norm(block_L(… block_1(√D · embed(x) + p)))

    BART also normalises √D · embed(x) + p, and other families use another factor than √D.
    Vaswani et al. 2017, §3.1 and §3.4 (papers.bib: vaswani2017attention).
    """

    def __init__(
        self, shape: TransformerShape, layers: int, embed: nn.Embedding, scale: float | None = None
    ) -> None:
        super().__init__()
        self._embed = (embed,)  # a tuple, so that torch does not register the embedding twice
        self.scale = math.sqrt(shape.width) if scale is None else scale
        self.context, self.out_width = shape.context, shape.width
        self.init_stack(shape, layers, causal=False)

    def forward(self, tokens_NS: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, S) → (N, S, D) of right-padded rows."""
        S = tokens_NS.shape[1]
        if self.context is not None and self.context < S:
            raise ValueError(f"a source has {S} tokens but the context is {self.context}: shorten it")
        x_NSD = self._embed[0](tokens_NS) * self.scale
        mask = attention_padding(lengths_N, x_NSD)
        return self.run_blocks(x_NSD, mask, [(None, attentions)] * len(self.blocks))

    def summary(self, memory_NSD: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, D): the mean over all tokens of a row."""
        return mean_context(memory_NSD, lengths_N)


EncoderConfig = RNNEncoderConfig | TransformerEncoderConfig
"""Any of the settings in ENCODERS."""

ENCODERS: dict[str, type[EncoderConfig]] = {
    "rnn": RNNEncoderConfig,
    "transformer": TransformerEncoderConfig,
}
