"""What the settings of every model that says tokens have in common: its vocabulary and its output layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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


# What every shape of a model is asked before it is built.


def one_of(config: Any, **choices: Iterable[str]) -> None:
    """Refuse a word that is not among the choices for its field."""
    for name, known in choices.items():
        value = getattr(config, name)
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown: choose from {', '.join(sorted(known))}")


LARGEST_SIZE = 2**31 - 1


def at_least_one(config: Any, *names: str) -> None:
    """Refuse sizes below 1, or beyond all reason; None stands for a size that follows from the others."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
        if value is not None and value > LARGEST_SIZE:
            raise ValueError(f"{name}={value!r:.40} is more than {LARGEST_SIZE}, the most that is allowed")


def positive(config: Any, *names: str) -> None:
    """Refuse numbers that are not above 0, or not finite."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value} must be above 0, and finite")


def shares(config: Any, *names: str) -> None:
    """Refuse shares of a whole that are negative, or all of it."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value} must be at least 0 and below 1")


def needs(given: Mapping[str, object], why: str) -> None:
    """Refuse what was left out, where something else asks for it."""
    for name, value in given.items():
        if value is None:
            raise ValueError(f"{why} needs {name}: give it a value")


def given(config: Any, kind: type, text: Any) -> None:
    """Refuse to make a model from anything but its own kind of settings, and a tokenizer or none."""
    if not isinstance(config, kind):
        raise TypeError(f"this model is made from {kind.__name__}(…), and {config!r:.80} is none")
    if text is not None and not all(
        hasattr(text, name) for name in ("encode", "decode", "detokenizer", "eos_ids")
    ):
        raise TypeError(
            f"text is {text!r:.80}, but must be a tokenizer, such as another model's text, or None"
        )
