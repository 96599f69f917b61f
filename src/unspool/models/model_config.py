"""Settings that all models share (vocabulary, head), and checks of settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unspool.arguments import Checked, integer
from unspool.config import check_types
from unspool.heads import HeadConfig


class ModelSettings(Checked):
    """Base class of the settings of models: fields are checked for their type and their limits."""

    def __post_init__(self) -> None:
        check_types(self)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(ModelSettings):
    """Vocabulary size and head of a model."""

    vocab_size: int = integer(at_least=1)
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
    source_vocab_size: int | None = integer(None, at_least=1)
    """The size of a separate source vocabulary; None means that both sides share one."""


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
