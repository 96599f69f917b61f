"""Hugging Face's configurations of BART and Marian: encoder–decoders with norms behind every branch.

    BART     learnt positions, of which the first two rows are never read; embeddings are normalised
    Marian   waves for positions, all sines before all cosines; embeddings are multiplied by √D

Lewis et al. 2020 (papers.bib: lewis2020bart); Junczys-Dowmunt et al. 2018 (papers.bib:
junczysdowmunt2018marian). What their `generate` does beyond the model (a forced first token, a pad that is
never said) is no part of these settings: say `us.ForcedBOS`, `us.BadWords`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from unspool.heads import SoftmaxHeadConfig
from unspool.models.load.dialect import Dialect
from unspool.models.load.settings import Settings
from unspool.models.load.unsupported import UnsupportedModelError
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

Seq2SeqFamily = Callable[[Settings], tuple[TransformerSeq2SeqConfig, Dialect]]

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Their name of an activation → ours."""


def _side(ours: str, theirs: str) -> dict[str, tuple[str, ...]]:
    """The modules that the blocks of both sides have."""
    layer = f"model.{theirs}.layers.{{}}."
    return {
        f"{ours}attention.qkv": tuple(f"{layer}self_attn.{it}_proj" for it in "qkv"),
        f"{ours}attention.out": (layer + "self_attn.out_proj",),
        f"{ours}attention_norm": (layer + "self_attn_layer_norm",),
        f"{ours}feed_forward.up": (layer + "fc1",),
        f"{ours}feed_forward.down": (layer + "fc2",),
        f"{ours}feed_forward_norm": (layer + "final_layer_norm",),
    }


_LOOK = "model.decoder.layers.{}.encoder_attn"
NAMES = {
    "embed": ("model.shared",),
    "head": ("lm_head",),
    "head.bias": ("final_logits_bias",),
    "encoder.positions": ("model.encoder.embed_positions",),
    "positions": ("model.decoder.embed_positions",),
    "encoder.embed_norm": ("model.encoder.layernorm_embedding",),
    "embed_norm": ("model.decoder.layernorm_embedding",),
    **_side("encoder.blocks.{}.", "encoder"),
    **_side("blocks.{}.", "decoder"),
    "blocks.{}.cross_attention.query": (_LOOK + ".q_proj",),
    "blocks.{}.cross_attention.kv": (_LOOK + ".k_proj", _LOOK + ".v_proj"),
    "blocks.{}.cross_attention.out": (_LOOK + ".out_proj",),
    "blocks.{}.cross_attention_norm": (_LOOK + "_layer_norm",),
}


def both_sides(settings: Settings, name: str) -> int:
    """A size that the encoder and the decoder say apart, and that is the same in our model."""
    sizes = [settings.integer(f"{side}_{name}") for side in ("encoder", "decoder")]
    if sizes[0] != sizes[1]:
        raise UnsupportedModelError(
            f"{settings.source}: encoder_{name} is {sizes[0]} and decoder_{name} {sizes[1]}; expected the "
            "same number on both sides, the only kind that is supported"
        )
    return sizes[0]


def known_activation(settings: Settings, key: str, default: str) -> str:
    """Our name of an activation."""
    said = settings.word(key, default)
    if said not in ACTIVATIONS:
        raise UnsupportedModelError(
            f"{settings.source}: {key} {said!r:.40} is unknown; known are {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[said]


def token(settings: Settings, key: str, default: int | None = None) -> int | None:
    """The id of a token; None where nothing is said of it."""
    value = settings.values.get(key, default)
    listed = value if isinstance(value, list) else [value]
    if not all(it is None or (type(it) is int and it >= 0) for it in listed):
        raise ValueError(f"{settings.source}: {key} is {value!r:.40}; expected the id of a token")
    if len(listed) != 1:
        raise UnsupportedModelError(
            f"{settings.source}: {key} is {value!r:.40}; expected one token, the only kind that is supported"
        )
    found: int | None = listed[0]
    return found


def first_token(settings: Settings, start: int | None, bos: int | None) -> int:
    """The token that an answer begins after, as their `generate` finds it."""
    begin = token(settings, "decoder_start_token_id", start)
    begin = token(settings, "bos_token_id", bos) if begin is None else begin
    if begin is None:
        raise ValueError(
            f"{settings.source}: decoder_start_token_id is missing; expected the id of the token that "
            "answers begin with"
        )
    return begin


def _bart_like(settings: Settings, **more: Any) -> TransformerSeq2SeqConfig:
    """What both families say in the same words."""
    settings.demand("is_encoder_decoder", True)
    settings.demand("is_decoder", False)
    for option in ("normalize_before", "add_final_layer_norm"):
        settings.demand(option, False)
    width, heads = settings.integer("d_model"), both_sides(settings, "attention_heads")
    if width % heads:
        raise ValueError(f"{settings.source}: a width of {width} cannot be shared by {heads} heads")
    return TransformerSeq2SeqConfig(
        vocab_size=settings.integer("vocab_size"),
        width=width,
        heads=heads,
        inner_width=both_sides(settings, "ffn_dim"),
        encoder_layers=settings.integer("encoder_layers"),
        decoder_layers=settings.integer("decoder_layers"),
        context=settings.integer("max_position_embeddings", 1024),
        norm="layer",
        norm_place="post",
        activation=known_activation(settings, "activation_function", "gelu"),
        bias=True,
        tied=settings.flag("tie_word_embeddings", True),
        head=SoftmaxHeadConfig(bias=True),
        embed_scale=math.sqrt(width) if settings.flag("scale_embedding", False) else 1.0,
        **more,
    )


def _bart(settings: Settings) -> tuple[TransformerSeq2SeqConfig, Dialect]:
    config = _bart_like(
        settings,
        positions="learned",
        embed_norm=True,
        source_bos=True,
        bos=first_token(settings, 2, 0),
        eos=token(settings, "eos_token_id", 2),
    )
    return config, Dialect(
        NAMES, ignored=r"(en|de)coder\.version", skipped={"encoder.positions": 2, "positions": 2}
    )


def _marian(settings: Settings) -> tuple[TransformerSeq2SeqConfig, Dialect]:
    settings.demand("share_encoder_decoder_embeddings", True)
    settings.demand("decoder_vocab_size", settings.integer("vocab_size"))
    config = _bart_like(
        settings,
        positions="sinusoidal_halves",
        bos=first_token(settings, 58100, None),
        eos=token(settings, "eos_token_id", 0),
    )
    return config, Dialect(NAMES)


FAMILIES: dict[str, Seq2SeqFamily] = {"bart": _bart, "marian": _marian}
