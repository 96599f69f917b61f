"""An encoder–decoder of ours as Hugging Face's classes have it: BART, Marian or T5, by its positions.

    learned             BART
    sinusoidal_halves   Marian
    relative            T5

The settings that are written are read again as a folder's are (`bart_families.py`, `t5_family.py`): where
that gives another shape than the model's, their class has no place for it, and it is refused. Weights go the
way back of `seq2seq_plan`: stacked ones are cut, factors are divided out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from unspool.heads import SoftmaxHeadConfig
from unspool.models.adapters import merged_weights
from unspool.models.load.dialect import Dialect, TensorPart
from unspool.models.load.huggingface_twin import Twin, huggingface_twin
from unspool.models.load.seq2seq_folder import FAMILIES
from unspool.models.load.seq2seq_plan import seq2seq_plan
from unspool.models.load.settings import Settings
from unspool.models.transformer_lm import TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq, TransformerSeq2SeqConfig

ARCHITECTURES = {
    "learned": ("bart", "BartForConditionalGeneration"),
    "sinusoidal_halves": ("marian", "MarianMTModel"),
    "relative": ("t5", "T5ForConditionalGeneration"),
}
"""Our positions → their `model_type`, and the name of their class."""
FREE = ("bos", "dropout", "eos", "head", "tied")
"""Fields that settings need not give back: they are said elsewhere, or are no part of what is computed."""
_NETWORKS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "geglu": "gated-gelu", "swiglu": "gated-silu"}
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "swish"}


def twin_of(model: TransformerLM | TransformerSeq2Seq) -> Twin:
    """The settings and weights of the class of theirs that says the same as the model."""
    return seq2seq_twin(model) if isinstance(model, TransformerSeq2Seq) else huggingface_twin(model)


def seq2seq_twin(model: TransformerSeq2Seq) -> Twin:
    """The same of an encoder–decoder. Adapters are merged into their matrices."""
    c = model.config
    if c.positions not in ARCHITECTURES:
        raise ValueError(
            f"an encoder–decoder with positions={c.positions!r} has no Hugging Face twin: only those of "
            f"BART, Marian and T5 have ({', '.join(ARCHITECTURES)})"
        )
    family, architecture = ARCHITECTURES[c.positions]
    _check_head(c, family)
    said = CONFIGS[family](model)
    theirs, dialect = FAMILIES[family](Settings(f"{architecture}'s settings", {"model_type": family, **said}))
    _check_shape(model, theirs, architecture)
    ours = {name: value.detach() for name, value in merged_weights(model).items()}
    weights = _their_weights(c, dialect, ours)
    copies = [f"{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    copies = copies if family == "t5" else [f"model.{name}" for name in copies]
    if not c.tied and family != "t5":  # their class then has an embedding for each side
        weights |= dict.fromkeys(copies, ours["embed.weight"])
    places = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    implied = frozenset([*copies, *places, "final_logits_bias"])
    return Twin(family, architecture, said, weights, implied)


def _their_weights(
    config: TransformerSeq2SeqConfig, dialect: Dialect, ours: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    theirs: dict[str, Tensor] = {}
    for target in seq2seq_plan(config, dialect):
        rows = [piece.shape[0] for piece in target.pieces]
        for piece, part in zip(target.pieces, torch.split(ours[target.name], rows), strict=True):
            if piece.source is not None:
                theirs[piece.source] = _laid_out(piece, part)
    return theirs


def _laid_out(piece: TensorPart, part: Tensor) -> Tensor:
    """A part of ours as a file of theirs has it; rows that nobody reads are zeros."""
    if not piece.as_it_is:
        part = (part - piece.plus) / piece.scale
    if piece.in_row:
        return part[None]
    return torch.cat([part.new_zeros(piece.skipped, *part.shape[1:]), part]) if piece.skipped else part


def _check_head(c: TransformerSeq2SeqConfig, family: str) -> None:
    head = SoftmaxHeadConfig() if c.head is None else c.head
    if not isinstance(head, SoftmaxHeadConfig) or head.tied not in (None, c.tied):
        raise ValueError(
            f"a head of {head!r:.60} is no softmax of one matrix's products, tied as the model is, the only "
            "kind that Hugging Face's classes have: save the model as ours"
        )
    if head.bias and family == "t5":
        raise ValueError("T5's class has no place for a bias of the head: save the model as ours")


def _check_shape(model: TransformerSeq2Seq, theirs: TransformerSeq2SeqConfig, architecture: str) -> None:
    ours = replace(model.config, embed_scale=model.scale, kv_heads=model.config.key_value_heads)
    ours = replace(ours, head_width=ours.each_width)
    theirs = replace(theirs, kv_heads=theirs.key_value_heads, head_width=theirs.each_width)
    for it in fields(ours):
        mine, other = getattr(ours, it.name), getattr(theirs, it.name)
        if it.name not in FREE and mine != other:
            raise ValueError(
                f"{it.name}={mine!r:.60} has no place in {architecture}, the Hugging Face class with such "
                f"positions, where it is {other!r:.60}: save the model as ours"
            )


def _ends(model: TransformerSeq2Seq) -> dict[str, Any]:
    if len(model.ends.eos) > 1:
        raise ValueError(
            f"texts of this model end at any of {sorted(model.ends.eos)}, and one token is read from "
            "settings of theirs: save the model as ours"
        )
    text = model.text
    return {
        "bos_token_id": None if text is None else text.bos_id,
        "decoder_start_token_id": model.ends.bos,
        "eos_token_id": min(model.ends.eos),
        "pad_token_id": model.ends.bos,
        "tie_word_embeddings": model.config.tied,
        "is_encoder_decoder": True,
    }


def _known(names: Mapping[str, str], activation: str) -> str:
    """Their word for an activation; one that is no word of theirs is refused when the settings are read."""
    return names.get(activation, activation)


def _bart_config(model: TransformerSeq2Seq) -> dict[str, Any]:
    return _marian_config(model) | {"pad_token_id": 1}  # always, in BART's vocabularies


def _marian_config(model: TransformerSeq2Seq) -> dict[str, Any]:
    c = model.config
    sides = {"attention_heads": c.heads, "ffn_dim": c.inner_width}
    # What `generate` of theirs would force is no part of the model: None is written.
    return _ends(model) | {
        "vocab_size": c.vocab_size,
        "d_model": c.width,
        "max_position_embeddings": c.context,
        "encoder_layers": c.encoder_layers,
        "decoder_layers": c.decoder_layers,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()},
        "activation_function": _known(_ACTIVATIONS, c.activation),
        "scale_embedding": model.scale != 1.0,
        "forced_eos_token_id": None,
    }


def _t5_config(model: TransformerSeq2Seq) -> dict[str, Any]:
    c = model.config
    return _ends(model) | {
        "vocab_size": c.vocab_size,
        "d_model": c.width,
        "d_kv": c.each_width,
        "d_ff": c.inner_width,
        "num_layers": c.encoder_layers,
        "num_decoder_layers": c.decoder_layers,
        "num_heads": c.heads,
        "relative_attention_num_buckets": c.relative_buckets,
        "relative_attention_max_distance": c.relative_distance,
        "layer_norm_epsilon": c.norm_eps,
        "feed_forward_proj": _known(_NETWORKS, c.activation),
    }


CONFIGS: dict[str, Callable[[TransformerSeq2Seq], dict[str, Any]]] = {
    "bart": _bart_config,
    "marian": _marian_config,
    "t5": _t5_config,
}
"""Their `model_type` → their settings."""
