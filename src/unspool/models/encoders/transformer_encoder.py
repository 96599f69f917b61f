"""A Transformer encoder: every token looks at every other one.

    h = norm(block_L(… block_1(√D · embed(x) + p)))

BART's normalises √D · embed(x) + p, too, and other families multiply by other numbers than √D.

Vaswani et al. 2017, §3.1 and §3.4 (papers.bib: vaswani2017attention).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.models.shape_checks import at_least_one
from unspool.models.transformer_shape import TransformerShape
from unspool.nn.attention.context import mean, padding
from unspool.nn.positions import placed
from unspool.nn.relative_positions import RelativePositions


@dataclass(frozen=True, kw_only=True)
class TransformerEncoderConfig(TransformerShape):
    """The shape of a Transformer encoder."""

    layers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "layers")

    def build(self, embed: nn.Embedding) -> TransformerEncoder:
        """An encoder that reads the vectors of this embedding."""
        return TransformerEncoder(self, self.layers, embed)


class TransformerEncoder(nn.Module):
    """Reads all tokens at once. It owns no embedding: that is the model's."""

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
        self._embed = (embed,)  # in a tuple, so that torch does not register the embedding twice
        self.scale = math.sqrt(shape.width) if scale is None else scale
        self.context, self.embed_norm, self.relative = shape.context, embed_norm, relative
        self.positions, self._rotary = shape.added(), shape.rotary()
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(shape.block(causal=False) for _ in range(layers))
        self.norm = shape.last_norm()
        self.out_width = shape.width

    def forward(self, tokens_NS: Tensor, lengths_N: Tensor, looks: list[Tensor] | None = None) -> Tensor:
        """(N, S) → (N, S, D); rows are padded on the right, where nobody looks."""
        S = tokens_NS.shape[1]
        if self.context is not None and self.context < S:
            raise ValueError(f"a source of {S} tokens is longer than the context of {self.context}: cut it")
        positions_1S = torch.arange(S, device=tokens_NS.device)[None]
        x_NSD = self._embed[0](tokens_NS) * self.scale
        if self.positions is not None:
            x_NSD = placed(x_NSD, self.positions(positions_1S))
        if self.embed_norm is not None:
            x_NSD = self.embed_norm(x_NSD)
        x_NSD = self.dropout(x_NSD)
        rotary = None if self._rotary is None else self._rotary.tables(positions_1S, S)
        padding_NS = padding(lengths_N, S, x_NSD.dtype)
        mask = None if padding_NS is None else padding_NS[:, None, None]
        if self.relative is not None:
            bias_1HSS = self.relative(0, S)
            mask = bias_1HSS if mask is None else bias_1HSS + mask
        for block in self.blocks:
            x_NSD = block(x_NSD, rotary, mask, looks=looks)
        normed: Tensor = self.norm(x_NSD)
        return normed

    def summary(self, memory_NSD: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, D): the mean over all tokens of a row."""
        return mean(memory_NSD, lengths_N)
