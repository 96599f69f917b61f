"""Assembled models. Autoregressive ones are StepModels, which every decoder supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unspool.config import choose, to_kind_dict
from unspool.heads import HEADS
from unspool.lazy import lazy_exports
from unspool.models.encoders import ENCODERS
from unspool.models.labelling import (
    Classifier,
    ClassifierConfig,
    Prediction,
    TaggedWord,
    Tagger,
    TaggerConfig,
)
from unspool.models.lora import LoRA, add_adapters, merge_adapters
from unspool.models.masked_lm import MaskedLM, MaskedLMConfig
from unspool.models.masked_seq2seq import MaskedSeq2Seq, MaskedSeq2SeqConfig
from unspool.models.rnn_lm import RNNLM, RNNConfig
from unspool.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq, TransformerSeq2SeqConfig
from unspool.models.trigram import Trigram, TrigramConfig

if TYPE_CHECKING:
    from unspool.models.loading.lora_file import (
        load_adapters as load_adapters,
        save_adapters as save_adapters,
    )

MODELS: dict[str, type] = {
    "classifier": ClassifierConfig,
    "masked_lm": MaskedLMConfig,
    "masked_seq2seq": MaskedSeq2SeqConfig,
    "rnn_lm": RNNConfig,
    "rnn_seq2seq": RNNSeq2SeqConfig,
    "tagger": TaggerConfig,
    "transformer_lm": TransformerConfig,
    "transformer_seq2seq": TransformerSeq2SeqConfig,
    "trigram": TrigramConfig,
}

__all__ = [
    "MODELS",
    "RNNLM",
    "Classifier",
    "ClassifierConfig",
    "LoRA",
    "MaskedLM",
    "MaskedLMConfig",
    "MaskedSeq2Seq",
    "MaskedSeq2SeqConfig",
    "Prediction",
    "RNNConfig",
    "RNNSeq2Seq",
    "RNNSeq2SeqConfig",
    "TaggedWord",
    "Tagger",
    "TaggerConfig",
    "TransformerConfig",
    "TransformerLM",
    "TransformerSeq2Seq",
    "TransformerSeq2SeqConfig",
    "Trigram",
    "TrigramConfig",
    "add_adapters",
    "load_adapters",
    "merge_adapters",
    "save_adapters",
]

__getattr__ = lazy_exports(__name__)[1]


CONFIG_PARTS: dict[str, Mapping[str, type]] = {"encoder": ENCODERS, "head": HEADS}
"""Field → its kinds."""


def config_to_dict(config: Any) -> dict[str, Any]:
    """The config as plain data for recipes and run folders: {"kind": "transformer_lm", "width": 256, …}.

    Parts of several kinds (encoder, head) have their own "kind".
    """
    settings_dict = to_kind_dict(MODELS, config)
    for name, kinds in CONFIG_PARTS.items():
        if name in settings_dict:
            settings_dict[name] = to_kind_dict(kinds, getattr(config, name))
    return settings_dict


def config_from_dict(settings: Mapping[str, Any], where: str) -> Any:
    """The config of such a mapping; `where` names the place in errors."""
    rest = dict(settings)
    for name, kinds in CONFIG_PARTS.items():
        part = rest.get(name)
        if isinstance(part, str):
            raise ValueError(
                f'{where}.{name} is {part!r}, but must be a table: write {name} = {{kind = "{part}"}}'
            )
        if isinstance(part, Mapping):
            rest[name] = choose(kinds, part, f"{where}.{name}")
    return choose(MODELS, rest, where)
