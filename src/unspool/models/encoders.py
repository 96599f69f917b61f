"""Recurrent and Transformer encoders: tokens → one contextual vector each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.config import check_types
from unspool.models.model_config import check_choices, check_fractions, check_sizes
from unspool.models.transformer_shape import TransformerShape
from unspool.nn.positions import RelativePositions, add_positions
from unspool.nn.rnn import CELLS
from unspool.nn.rnn_attention import last_context, mean_context, padding_mask


@dataclass(frozen=True, kw_only=True)
class RNNEncoderConfig:
    """Settings of a recurrent encoder."""

    width: int
    """The width of the embedding and of each direction."""
    layers: int = 1
    cell: str = "gru"
    bidirectional: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        check_choices(self, cell=CELLS)
        check_sizes(self, "width", "layers")
        check_fractions(self, "dropout")

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

    @property
    def out_width(self) -> int:
        return self.rnn.out_width

    def forward(self, tokens_NS: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, S) → (N, S, E) of right-padded rows; 0 on padding."""
        memory_NSE, _ = self.rnn.read(self.dropout(self._embed[0](tokens_NS)), lengths_N=lengths_N)
        dropped: Tensor = self.dropout(memory_NSE)
        return dropped

    def summary(self, memory_NSE: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, E): the final state of each direction."""
        return last_context(memory_NSE, lengths_N, self.config.bidirectional)


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(TransformerShape):
    """Settings of a Transformer encoder."""

    layers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "layers")

    def build(self, embed: nn.Embedding) -> TransformerEncoder:
        return TransformerEncoder(self, self.layers, embed)


class TransformerEncoder(nn.Module):
    """A Transformer encoder with bidirectional attention.

        h = norm(block_L(… block_1(√D · embed(x) + p)))

    BART also normalises √D · embed(x) + p, and other families use another factor than √D.
    Vaswani et al. 2017, §3.1 and §3.4 (papers.bib: vaswani2017attention).
    """

    def __init__(
        self,
        shape: TransformerShape,
        layers: int,
        embed: nn.Embedding,
        scale: float | None = None,
        embed_norm: nn.Module | None = None,
        relative: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        self._embed = (embed,)  # a tuple, so that torch does not register the embedding twice
        self.scale = math.sqrt(shape.width) if scale is None else scale
        self.context, self.embed_norm, self.relative = shape.context, embed_norm, relative
        self.positions, self._rotary = shape.added(), shape.rotary()
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(shape.block(causal=False) for _ in range(layers))
        self.norm = shape.last_norm()
        self.out_width = shape.width

    def forward(self, tokens_NS: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, S) → (N, S, D) of right-padded rows."""
        S = tokens_NS.shape[1]
        if self.context is not None and self.context < S:
            raise ValueError(f"a source has {S} tokens but the context is {self.context}: shorten it")
        positions_1S = torch.arange(S, device=tokens_NS.device)[None]
        x_NSD = self._embed[0](tokens_NS) * self.scale
        if self.positions is not None:
            x_NSD = add_positions(x_NSD, self.positions(positions_1S))
        if self.embed_norm is not None:
            x_NSD = self.embed_norm(x_NSD)
        x_NSD = self.dropout(x_NSD)
        rotary = None if self._rotary is None else self._rotary.tables(positions_1S, S)
        padding_NS = padding_mask(lengths_N, S, x_NSD.dtype)
        mask = None if padding_NS is None else padding_NS[:, None, None]
        if self.relative is not None:
            bias_1HSS = self.relative(0, S)
            mask = bias_1HSS if mask is None else bias_1HSS + mask
        for block in self.blocks:
            x_NSD = block(x_NSD, rotary, mask, attentions=attentions)
        normed: Tensor = self.norm(x_NSD)
        return normed

    def summary(self, memory_NSD: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, D): the mean over all tokens of a row."""
        return mean_context(memory_NSD, lengths_N)


EncoderConfig = RNNEncoderConfig | TransformerEncoderConfig
"""Any of the settings in ENCODERS."""

ENCODERS: dict[str, type[EncoderConfig]] = {
    "rnn": RNNEncoderConfig,
    "transformer": TransformerEncoderConfig,
}
