"""Settings that all models share (vocabulary, head), and checks of settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unspool.heads import HeadConfig


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """Vocabulary size and head of a model."""

    vocab_size: int
    tied: bool = True
    """Use the input embedding as output matrix, unless `head` sets `tied`."""
    head: HeadConfig | None = None
    """The head; None means a softmax."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(VocabularyOptions):
    """The vocabularies of an encoder–decoder."""

    bos: int | None = None
    """The BOS token; None means that of the tokenizer."""
    eos: int | None = None
    """The EOS token; None means that of the tokenizer."""
    source_vocab_size: int | None = None
    """The size of a separate source vocabulary; None means that both sides share one."""


def check_choices(config: Any, **choices: Iterable[str]) -> None:
    """Raise ValueError if a field is not one of its choices."""
    for name, known in choices.items():
        value = getattr(config, name)
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown: choose from {', '.join(sorted(known))}")


MAX_SIZE = 2**31 - 1


def check_sizes(config: Any, *names: str) -> None:
    """Raise ValueError for sizes below 1 or above MAX_SIZE; None is allowed."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
        if value is not None and value > MAX_SIZE:
            raise ValueError(f"{name}={value!r:.40} is more than {MAX_SIZE}, the most that is allowed")


def check_positive(config: Any, *names: str) -> None:
    """Raise ValueError for numbers that are not positive and finite."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value} must be positive and finite")


def check_fractions(config: Any, *names: str) -> None:
    """Raise ValueError for fractions outside [0, 1)."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value} must be at least 0 and below 1")


def check_given(given: Mapping[str, object], why: str) -> None:
    """Raise ValueError if a setting that another one needs is None."""
    for name, value in given.items():
        if value is None:
            raise ValueError(f"{why} needs {name}: give it a value")


def check_build_arguments(config: Any, kind: type, tokenizer: Any) -> None:
    """Raise TypeError unless the arguments are settings of this kind and a tokenizer or None."""
    if not isinstance(config, kind):
        raise TypeError(f"this model is made from {kind.__name__}(…), and {config!r:.80} is none")
    if tokenizer is not None and not all(
        hasattr(tokenizer, name) for name in ("encode", "decode", "detokenizer", "eos_ids")
    ):
        raise TypeError(
            f"text is {tokenizer!r:.80}, but must be a tokenizer, such as another model's text, or None"
        )
