"""A classifier: one label for a whole text.

    V^n → K:   log p(label | x) = head(dropout(summary(encoder(x))))

The summary is the mean of what a Transformer says about each token, and what each direction of a recurrent
network says at its own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from unspool.models.decoding_mode import decodes
from unspool.models.labels import Labeller, LabellerConfig, Prediction, ranked

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.protocols import Text
    from unspool.text.word_tokens import WordTokens


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(LabellerConfig):
    """The shape of a classifier."""

    def build(self, text: Text | None = None) -> Classifier:
        """A model of this shape, with random weights."""
        return Classifier(self, text)


class Classifier(Labeller):
    """Reads a text and says how probable each label is."""

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor, looks: list[Tensor] | None = None) -> Tensor:
        """(N, T) → (N, D): what the head reads of every row."""
        memory_NTD = self.encoded(tokens_NT, lengths_N, looks)
        hidden: Tensor = self.dropout(self.encoder.summary(memory_NTD, lengths_N))
        return hidden

    def hidden_for(self, batch: Batch, looks: list[Tensor] | None = None) -> Tensor:
        """(N, 1, D)."""
        return self.hidden(batch.inputs_NT, batch.lengths_N, looks).unsqueeze(1)

    @decodes
    def label(self, rows: Sequence[WordTokens]) -> list[Prediction]:
        """What each of some rows, all in one batch, is."""
        found = ranked(self(*self.inputs(rows)), self.labels)
        return [Prediction(*next(iter(each.items())), each) for each in found]

    def classify(self, texts: Sequence[str | Sequence[int]]) -> list[Prediction]:
        """The label of each text (a string, or token ids); all of them are one batch."""
        return self.label(self.read(texts))
