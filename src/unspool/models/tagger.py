"""A tagger: one label for every word.

    V^n → K^n:   log p(label_t | x) = head(dropout(encoder(x)_t))

It says something of every token; a word is what its first token is, and words are what white space separates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unspool.characters import check_characters
from unspool.models.decoding_mode import decodes
from unspool.models.labels import Labeller, LabellerConfig, Prediction, ranked
from unspool.text.codec import Codec
from unspool.text.word_tokens import WordTokens, word_tokens

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.protocols import Text


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(LabellerConfig):
    """The shape of a tagger."""

    def build(self, text: Text | None = None) -> Tagger:
        """A model of this shape, with random weights."""
        return Tagger(self, text)


@dataclass(frozen=True)
class TaggedWord(Prediction):
    """A word, its most probable label, and how probable each one is."""

    word: str


class Tagger(Labeller):
    """Reads a text and says, for each of its tokens, how probable each label is."""

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor, looks: list[Tensor] | None = None) -> Tensor:
        """(N, T) → (N, T, D): what the head reads of every token."""
        hidden: Tensor = self.dropout(self.encoded(tokens_NT, lengths_N, looks))
        return hidden

    def hidden_for(self, batch: Batch, looks: list[Tensor] | None = None) -> Tensor:
        """(N, T, D)."""
        return self.hidden(batch.inputs_NT, batch.lengths_N, looks)

    @decodes
    def label(self, rows: Sequence[WordTokens]) -> list[list[TaggedWord]]:
        """What each word of some rows, all in one batch, is: what its first token is."""
        logp_NTK = self(*self.inputs(rows))
        places = [(n, first) for n, row in enumerate(rows) for first in row.firsts]
        row_M, first_M = torch.tensor(places, device=logp_NTK.device).unbind(-1)
        found = iter(ranked(logp_NTK[row_M, first_M], self.labels))
        return [
            [
                TaggedWord(*next(iter(each.items())), each, word)
                for word, each in zip(row.words, islice(found, len(row.words)), strict=True)
            ]
            for row in rows
        ]

    def of_string(self, text: str) -> WordTokens:
        """A text's tokens without BOS, and its words."""
        if not isinstance(self.text, Codec):
            raise TypeError(
                f"{type(self.text).__name__} does not say which characters a token spells: what is a word "
                "cannot be told; give token ids, or build the model with an unspool.text.Codec"
            )
        check_characters(text, "the text")
        (found,) = word_tokens([text if text.strip() else ""], self.text)
        return found

    def of_tokens(self, ids: list[int]) -> WordTokens:
        """Every token is a word of its own."""
        words = [f"#{token}" if self.text is None else self.text.decode([token]) for token in ids]
        return WordTokens(ids, words, list(range(len(ids))))

    def tag(self, texts: Sequence[str | Sequence[int]]) -> list[list[TaggedWord]]:
        """The label of each word of each text (a string, or token ids); all of them are one batch."""
        return self.label(self.read(texts))
