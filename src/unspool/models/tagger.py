"""A tagger: one label for every token.

V^n → K^n:   log p(label_t | x) = head(dropout(encoder(x)_t))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unspool.heads import HeadConfig, SoftmaxHead
from unspool.models.checks import at_least_one, shares
from unspool.models.encoders import EncoderConfig
from unspool.models.labels import Labelled, check_labels, inputs

if TYPE_CHECKING:
    from unspool.protocols import Batch, Text


@dataclass(frozen=True, kw_only=True)
class TaggerConfig:
    """The shape of a tagger."""

    vocab_size: int
    labels: tuple[str, ...]
    """What it chooses from: target i is labels[i]."""
    encoder: EncoderConfig
    dropout: float = 0.0
    """In front of the head; the encoder has its own."""
    head: HeadConfig | None = None
    """How hidden vectors become probabilities; None is the plain softmax with a bias."""

    def __post_init__(self) -> None:
        at_least_one(self, "vocab_size")
        shares(self, "dropout")
        check_labels(self.labels)

    def build(self, text: Text | None = None) -> Tagger:
        """A model of this shape, with random weights."""
        return Tagger(self, text)


class Tagger(nn.Module):
    """Reads a text and says, for each of its tokens, how probable each label is."""

    def __init__(self, config: TaggerConfig, text: Text | None = None) -> None:
        super().__init__()
        c = self.config = config
        self.text = text
        self.embed = nn.Embedding(c.vocab_size, c.encoder.width)
        nn.init.normal_(self.embed.weight, std=c.encoder.width**-0.5)
        self.encoder: Any = c.encoder.build(self.embed)
        self.dropout = nn.Dropout(c.dropout)
        head = c.head or SoftmaxHead(bias=True)
        self.head: Any = head.build(self.encoder.out_width, len(c.labels), None)

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, T) → (N, T, D): what the head reads of every token."""
        hidden: Tensor = self.dropout(self.encoder(tokens_NT, lengths_N))
        return hidden

    def hidden_for(self, batch: Batch) -> Tensor:
        """(N, T, D)."""
        return self.hidden(batch.inputs_NT, batch.lengths_N)

    def forward(self, tokens_NT: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, T) → (N, T, K): log p of every label of every token."""
        logp: Tensor = self.head(self.hidden(tokens_NT, lengths_N))
        return logp

    @torch.inference_mode()
    def tag(self, texts: Sequence[str | Sequence[int]]) -> list[list[Labelled]]:
        """The most probable label of each token of each text (a string, or token ids)."""
        tokens_NT, lengths_N = inputs(texts, self.text, self.embed)
        logp_NTK = self(tokens_NT, lengths_N)
        return [
            [Labelled.best(logp_K, self.config.labels) for logp_K in logp_TK[:length]]
            for logp_TK, length in zip(logp_NTK, lengths_N.tolist(), strict=True)
        ]
