"""Hugging Face configurations and weight layouts of the encoder–decoders BART, Marian and T5.

    BART     post-norm; learned positions, of which the first two rows are unused; normalised embeddings
    Marian   post-norm; sinusoidal positions, all sines before all cosines; embeddings × √D
    T5       pre-norm without biases; relative positions; version 1.0 and 1.1 (Flan-T5)

BART: Lewis et al. 2020 (papers.bib: lewis2020bart). Marian: Junczys-Dowmunt et al. 2018 (papers.bib:
junczysdowmunt2018marian). T5: Raffel et al. 2020 (papers.bib: raffel2020exploring).

Deviation: rules that transformers applies in `generate` (a forced first token, a banned pad token) are not
part of the model; use `us.ForcedBOS` and `us.BadWords`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from unspool.heads import SoftmaxHeadConfig
from unspool.models.loading.causal_families import ACTIVATIONS, divide_width
from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.models.loading.weight_layout import WeightLayout
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

Seq2SeqFamily = Callable[[ConfigReader], tuple[TransformerSeq2SeqConfig, WeightLayout]]


def _bart_side(ours: str, theirs: str) -> dict[str, tuple[str, ...]]:
    """The block modules of one side."""
    layer = f"model.{theirs}.layers.{{}}."
    return {
        f"{ours}attention.qkv": tuple(f"{layer}self_attn.{part}_proj" for part in "qkv"),
        f"{ours}attention.out": (layer + "self_attn.out_proj",),
        f"{ours}attention_norm": (layer + "self_attn_layer_norm",),
        f"{ours}feed_forward.up": (layer + "fc1",),
        f"{ours}feed_forward.down": (layer + "fc2",),
        f"{ours}feed_forward_norm": (layer + "final_layer_norm",),
    }


_BART_CROSS_ATTENTION = "model.decoder.layers.{}.encoder_attn"
BART_NAMES = {
    "embed": ("model.shared",),
    "head": ("lm_head",),
    "head.bias": ("final_logits_bias",),
    "encoder.positions": ("model.encoder.embed_positions",),
    "positions": ("model.decoder.embed_positions",),
    "encoder.embed_norm": ("model.encoder.layernorm_embedding",),
    "embed_norm": ("model.decoder.layernorm_embedding",),
    **_bart_side("encoder.blocks.{}.", "encoder"),
    **_bart_side("blocks.{}.", "decoder"),
    "blocks.{}.cross_attention.query": (_BART_CROSS_ATTENTION + ".q_proj",),
    "blocks.{}.cross_attention.kv": (_BART_CROSS_ATTENTION + ".k_proj", _BART_CROSS_ATTENTION + ".v_proj"),
    "blocks.{}.cross_attention.out": (_BART_CROSS_ATTENTION + ".out_proj",),
    "blocks.{}.cross_attention_norm": (_BART_CROSS_ATTENTION + "_layer_norm",),
}


def shared_size(settings: ConfigReader, name: str) -> int:
    """A size that must be equal for encoder and decoder."""
    sizes = [settings.integer(f"{side}_{name}") for side in ("encoder", "decoder")]
    if sizes[0] != sizes[1]:
        raise UnsupportedModelError(
            f"{settings.source}: encoder_{name} is {sizes[0]} and decoder_{name} is {sizes[1]}; only equal "
            "sizes are supported"
        )
    return sizes[0]


def token_id(settings: ConfigReader, key: str, default: int | None = None) -> int | None:
    """A token id, or None if absent."""
    value = settings.get(key, default)
    listed = value if isinstance(value, list) else [value]
    if not all(token is None or (type(token) is int and token >= 0) for token in listed):
        raise ValueError(f"{settings.source}: {key} is {value!r:.40}; expected the id of a token")
    if len(listed) != 1:
        raise UnsupportedModelError(f"{settings.source}: {key} is {value!r:.40}; only one token is supported")
    return listed[0]


def decoder_start_id(settings: ConfigReader, start: int | None, bos: int | None) -> int:
    """The decoder's start token, found as in transformers' `generate`."""
    begin = token_id(settings, "decoder_start_token_id", start)
    begin = token_id(settings, "bos_token_id", bos) if begin is None else begin
    if begin is None:
        raise ValueError(
            f"{settings.source}: decoder_start_token_id is missing; expected the decoder's first token id"
        )
    return begin


def _bart_like(settings: ConfigReader, **more: Any) -> TransformerSeq2SeqConfig:
    """The settings that BART and Marian share."""
    settings.require("is_encoder_decoder", True)
    settings.require("is_decoder", False)
    for option in ("normalize_before", "add_final_layer_norm"):
        settings.require(option, False)
    width, heads = settings.integer("d_model"), shared_size(settings, "attention_heads")
    divide_width(settings, width, heads)
    return TransformerSeq2SeqConfig(
        vocab_size=settings.integer("vocab_size"),
        width=width,
        heads=heads,
        inner_width=shared_size(settings, "ffn_dim"),
        encoder_layers=settings.integer("encoder_layers"),
        decoder_layers=settings.integer("decoder_layers"),
        context=settings.integer("max_position_embeddings", 1024),
        norm="layer",
        norm_place="post",
        activation=settings.choose("activation_function", ACTIVATIONS, "gelu"),
        bias=True,
        tied=settings.flag("tie_word_embeddings", True),
        head=SoftmaxHeadConfig(bias=True),
        embed_scale=math.sqrt(width) if settings.flag("scale_embedding", False) else 1.0,
        **more,
    )


def _bart(settings: ConfigReader) -> tuple[TransformerSeq2SeqConfig, WeightLayout]:
    config = _bart_like(
        settings,
        positions="learned",
        embed_norm=True,
        source_bos=True,
        bos=decoder_start_id(settings, 2, 0),
        eos=token_id(settings, "eos_token_id", 2),
    )
    return config, WeightLayout(
        BART_NAMES, ignored=r"(en|de)coder\.version", skipped_rows={"encoder.positions": 2, "positions": 2}
    )


def _marian(settings: ConfigReader) -> tuple[TransformerSeq2SeqConfig, WeightLayout]:
    settings.require("share_encoder_decoder_embeddings", True)
    settings.require("decoder_vocab_size", settings.integer("vocab_size"))
    config = _bart_like(
        settings,
        positions="sinusoidal_halves",
        bos=decoder_start_id(settings, 58100, None),
        eos=token_id(settings, "eos_token_id", 0),
    )
    return config, WeightLayout(BART_NAMES)


T5_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "gated-gelu": "geglu",
    "gated-silu": "swiglu",
}
"""Hugging Face's name of a feed-forward network → our activation."""


def _t5_side(ours: str, theirs: str, last: int) -> dict[str, tuple[str, ...]]:
    """The block modules of one side; the feed-forward network is branch `last`."""
    own, network = (f"{theirs}.block.{{}}.layer.{branch}." for branch in (0, last))
    return {
        f"{ours}attention.qkv": tuple(f"{own}SelfAttention.{part}" for part in "qkv"),
        f"{ours}attention.out": (own + "SelfAttention.o",),
        f"{ours}attention_norm": (own + "layer_norm",),
        f"{ours}feed_forward.down": (network + "DenseReluDense.wo",),
        f"{ours}feed_forward_norm": (network + "layer_norm",),
    }


def _up(theirs: str, last: int, gated: bool) -> tuple[str, ...]:
    up = f"{theirs}.block.{{}}.layer.{last}.DenseReluDense.wi"
    return (f"{up}_0", f"{up}_1") if gated else (up,)


_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"
_T5_CROSS_ATTENTION = "decoder.block.{}.layer.1."
T5_NAMES = {
    "embed": ("shared",),
    "head": ("lm_head",),
    "encoder.relative": (f"encoder.{_BIAS}",),
    "relative": (f"decoder.{_BIAS}",),
    "encoder.norm": ("encoder.final_layer_norm",),
    "norm": ("decoder.final_layer_norm",),
    **_t5_side("encoder.blocks.{}.", "encoder", 1),
    **_t5_side("blocks.{}.", "decoder", 2),
    "blocks.{}.cross_attention.query": (_T5_CROSS_ATTENTION + "EncDecAttention.q",),
    "blocks.{}.cross_attention.kv": (
        _T5_CROSS_ATTENTION + "EncDecAttention.k",
        _T5_CROSS_ATTENTION + "EncDecAttention.v",
    ),
    "blocks.{}.cross_attention.out": (_T5_CROSS_ATTENTION + "EncDecAttention.o",),
    "blocks.{}.cross_attention_norm": (_T5_CROSS_ATTENTION + "layer_norm",),
}


def _t5(settings: ConfigReader) -> tuple[TransformerSeq2SeqConfig, WeightLayout]:
    """T5 adds a bias for the distance to unscaled attention scores (`nn.positions`).

    The query weights are multiplied by √I to undo our division of scores. In version 1.0 the head is the
    embedding and reads hidden states divided by √D, which is folded into the last norm; in 1.1 it is a
    separate matrix.
    """
    settings.require("is_encoder_decoder", True)
    settings.require("is_decoder", False)
    activation = settings.choose("feed_forward_proj", T5_ACTIVATIONS, "relu")
    network = settings.string("feed_forward_proj", "relu")
    gated = network.startswith("gated")
    settings.require("is_gated_act", gated)  # transformers derives these two, and they take precedence
    settings.require("dense_act_fn", {"gated-gelu": "gelu_new"}.get(network, network.removeprefix("gated-")))
    width, layers, head_width = (settings.integer(name) for name in ("d_model", "num_layers", "d_kv"))
    config = TransformerSeq2SeqConfig(
        vocab_size=settings.integer("vocab_size"),
        width=width,
        heads=settings.integer("num_heads"),
        head_width=head_width,
        inner_width=settings.integer("d_ff"),
        encoder_layers=layers,
        decoder_layers=settings.integer("num_decoder_layers", layers),
        norm_eps=settings.number("layer_norm_epsilon", 1e-6),
        positions="relative",
        relative_buckets=settings.integer("relative_attention_num_buckets", 32),
        relative_distance=settings.integer("relative_attention_max_distance", 128),
        activation=activation,
        embed_scale=1.0,
        bos=decoder_start_id(settings, None, None),
        eos=token_id(settings, "eos_token_id", 1),
    )
    names = {
        "encoder.blocks.{}.feed_forward.up": _up("encoder", 1, gated),
        "blocks.{}.feed_forward.up": _up("decoder", 2, gated),
    }
    # The head reads hidden states divided by √D; older configurations say so by tying.
    is_scaled = settings.flag("scale_decoder_outputs", settings.flag("tie_word_embeddings", True))
    query, plain = (math.sqrt(head_width), 0.0), (1.0, 0.0)
    return config, WeightLayout(
        T5_NAMES | names,
        ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        affine={
            "encoder.blocks.{}.attention.qkv": (query, plain, plain),
            "blocks.{}.attention.qkv": (query, plain, plain),
            "blocks.{}.cross_attention.query": (query,),
            "norm": ((1 / math.sqrt(width) if is_scaled else 1.0, 0.0),),
        },
    )


SEQ2SEQ_FAMILIES: dict[str, Seq2SeqFamily] = {"bart": _bart, "marian": _marian, "t5": _t5}
"""`model_type` → reader of its configuration and weight layout."""
