"""Assembled models. Autoregressive ones are StepModels, which every decoder supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unspool.config import choose, to_kind_dict
from unspool.heads import HEADS
from unspool.lazy import lazy_exports
from unspool.models.encoders import ENCODERS
from unspool.models.labelling import ClassifierConfig, TaggerConfig
from unspool.models.masked_models import MaskedLMConfig, MaskedSeq2SeqConfig
from unspool.models.rnn_models import RNNConfig, RNNSeq2SeqConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.models.trigram import TrigramConfig

if TYPE_CHECKING:
    from unspool.models.labelling import (
        Classifier as Classifier,
        Prediction as Prediction,
        TaggedWord as TaggedWord,
        Tagger as Tagger,
    )
    from unspool.models.loading.lora_file import (
        load_adapters as load_adapters,
        save_adapters as save_adapters,
    )
    from unspool.models.lora import (
        LoRA as LoRA,
        add_adapters as add_adapters,
        merge_adapters as merge_adapters,
    )
    from unspool.models.masked_models import MaskedLM as MaskedLM, MaskedSeq2Seq as MaskedSeq2Seq
    from unspool.models.rnn_models import RNNLM as RNNLM, RNNSeq2Seq as RNNSeq2Seq
    from unspool.models.transformer_lm import TransformerLM as TransformerLM
    from unspool.models.transformer_seq2seq import TransformerSeq2Seq as TransformerSeq2Seq
    from unspool.models.trigram import Trigram as Trigram

__all__, __getattr__, __dir__ = lazy_exports(__name__)

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
__all__ += ["MODELS", *(kind.__name__ for kind in MODELS.values())]

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
