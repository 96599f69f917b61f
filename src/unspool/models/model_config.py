"""Settings that all models share (vocabulary, head), and checks of settings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from unspool.config import check_types
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


MAX_SIZE = 2**31 - 1
FRACTIONS = ("dropout", "norm_eps")


def check_settings(config: Any, **choices: Iterable[str]) -> None:
    """Raise an error for a field of the wrong type, outside its choices or out of range; None is allowed.

    Integers except tokens are sizes from 1 to MAX_SIZE, floats are positive and finite, FRACTIONS in [0, 1).
    """
    check_types(config)
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        if name in choices and value not in choices[name]:
            raise ValueError(f"{name}={value!r} is unknown: choose from {', '.join(sorted(choices[name]))}")
        if name in ("bos", "eos") or isinstance(value, bool):
            continue
        if isinstance(value, int) and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
        if isinstance(value, int) and value > MAX_SIZE:
            raise ValueError(f"{name}={value!r:.40} is more than {MAX_SIZE}, the most that is allowed")
        if name in FRACTIONS and not 0 <= value < 1:
            raise ValueError(f"{name}={value} must be at least 0 and below 1")
        if isinstance(value, float) and name not in FRACTIONS and not 0 < value < math.inf:
            raise ValueError(f"{name}={value} must be positive and finite")


def check_build_arguments(config: Any, kind: type, tokenizer: Any) -> None:
    """Raise TypeError unless the arguments are settings of this kind and a tokenizer or None."""
    if not isinstance(config, kind):
        raise TypeError(f"this model is built from a {kind.__name__}, not from {config!r:.80}")
    if tokenizer is not None and not all(
        hasattr(tokenizer, name) for name in ("encode", "decode", "detokenizer", "eos_ids")
    ):
        raise TypeError(
            f"tokenizer is {tokenizer!r:.80}, but must be a tokenizer, such as another model's, or None"
        )
