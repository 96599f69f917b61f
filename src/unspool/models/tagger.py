"""A tagger: one label for every token.

V^n → K^n:   log p(label_t | x) = head(dropout(encoder(x)_t))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from unspool.models.decoding_mode import decodes
from unspool.models.labels import Labelled, Labeller, LabellerConfig, inputs

if TYPE_CHECKING:
    from unspool.protocols import Batch, Text


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(LabellerConfig):
    """The shape of a tagger."""

    def build(self, text: Text | None = None) -> Tagger:
        """A model of this shape, with random weights."""
        return Tagger(self, text)


class Tagger(Labeller):
    """Reads a text and says, for each of its tokens, how probable each label is."""

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

    @decodes
    def tag(self, texts: Sequence[str | Sequence[int]]) -> list[list[Labelled]]:
        """The most probable label of each token of each text (a string, or token ids)."""
        tokens_NT, lengths_N = inputs(texts, self.text, self.embed)
        logp_NTK = self(tokens_NT, lengths_N)
        return [
            [Labelled.best(logp_K, self.config.labels) for logp_K in logp_TK[:length]]
            for logp_TK, length in zip(logp_NTK, lengths_N.tolist(), strict=True)
        ]
