"""What the settings of every model that says tokens have in common: its vocabulary and its output layer."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.heads import HeadConfig


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """The tokens that a model says, and how its hidden vectors become their probabilities."""

    vocab_size: int
    tied: bool = True
    """The output matrix is the input embedding, unless `head` says otherwise."""
    head: HeadConfig | None = None
    """How hidden vectors become probabilities; None is the plain softmax, tied or not."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(VocabularyOptions):
    """The tokens of both sides of an encoder–decoder."""

    bos: int | None = None
    """The token that begins a text; None is the text's own."""
    eos: int | None = None
    """The token that ends a text; None is the text's own."""
    source_vocab_size: int | None = None
    """Tokens of a vocabulary that sources alone have, with their own embedding; None: one for both sides."""
