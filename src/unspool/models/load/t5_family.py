"""Hugging Face's configuration of T5, of its first version and of 1.1 (Flan-T5).

Norms stand before every branch and have a gain only; nothing has a bias. A score is the inner product itself
with a number for the distance added (`nn.relative_positions`): our division by √I is taken back in the
queries. The head is the embedding, and reads vectors that are divided by √D; in version 1.1 it is a matrix of
its own, and reads them as they are.

Raffel et al. 2020 (papers.bib: raffel2020exploring).
"""

from __future__ import annotations

import math

from unspool.models.load.bart_families import first_token, token
from unspool.models.load.dialect import Dialect
from unspool.models.load.settings import Settings
from unspool.models.load.unsupported import UnsupportedModelError
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "gated-gelu": "geglu", "gated-silu": "swiglu"}
"""Their name of a feed-forward network → our activation."""


def _side(ours: str, theirs: str, last: int) -> dict[str, tuple[str, ...]]:
    """The modules that the blocks of both sides have; the feed-forward network is their branch `last`."""
    own, network = (f"{theirs}.block.{{}}.layer.{branch}." for branch in (0, last))
    return {
        f"{ours}attention.qkv": tuple(f"{own}SelfAttention.{it}" for it in "qkv"),
        f"{ours}attention.out": (own + "SelfAttention.o",),
        f"{ours}attention_norm": (own + "layer_norm",),
        f"{ours}feed_forward.down": (network + "DenseReluDense.wo",),
        f"{ours}feed_forward_norm": (network + "layer_norm",),
    }


def _up(theirs: str, last: int, gated: bool) -> tuple[str, ...]:
    up = f"{theirs}.block.{{}}.layer.{last}.DenseReluDense.wi"
    return (f"{up}_0", f"{up}_1") if gated else (up,)


_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"
_LOOK = "decoder.block.{}.layer.1."
NAMES = {
    "embed": ("shared",),
    "head": ("lm_head",),
    "encoder.relative": (f"encoder.{_BIAS}",),
    "relative": (f"decoder.{_BIAS}",),
    "encoder.norm": ("encoder.final_layer_norm",),
    "norm": ("decoder.final_layer_norm",),
    **_side("encoder.blocks.{}.", "encoder", 1),
    **_side("blocks.{}.", "decoder", 2),
    "blocks.{}.cross_attention.query": (_LOOK + "EncDecAttention.q",),
    "blocks.{}.cross_attention.kv": (_LOOK + "EncDecAttention.k", _LOOK + "EncDecAttention.v"),
    "blocks.{}.cross_attention.out": (_LOOK + "EncDecAttention.o",),
    "blocks.{}.cross_attention_norm": (_LOOK + "layer_norm",),
}


def t5(settings: Settings) -> tuple[TransformerSeq2SeqConfig, Dialect]:
    """Our shape and their names."""
    settings.demand("is_encoder_decoder", True)
    settings.demand("is_decoder", False)
    network = settings.word("feed_forward_proj", "relu")
    if network not in ACTIVATIONS:
        raise UnsupportedModelError(
            f"{settings.source}: feed_forward_proj {network!r:.40} is unknown; known are "
            + ", ".join(ACTIVATIONS)
        )
    gated = network.startswith("gated")
    settings.demand("is_gated_act", gated)  # what transformers makes of the above, and believes more
    settings.demand("dense_act_fn", {"gated-gelu": "gelu_new"}.get(network, network.removeprefix("gated-")))
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
        activation=ACTIVATIONS[network],
        embed_scale=1.0,
        bos=first_token(settings, None, None),
        eos=token(settings, "eos_token_id", 1),
    )
    names = {
        "encoder.blocks.{}.feed_forward.up": _up("encoder", 1, gated),
        "blocks.{}.feed_forward.up": _up("decoder", 2, gated),
    }
    return config, Dialect(
        NAMES | names,
        ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        adjusted=_factors(math.sqrt(head_width), 1 / math.sqrt(width) if _divided(settings) else 1.0),
    )


def _divided(settings: Settings) -> bool:
    """Whether the head reads vectors that are divided by √D: older settings say it by tying."""
    own = settings.flag("tie_word_embeddings", True)
    return settings.flag("scale_decoder_outputs", own)


def _factors(query: float, last: float) -> dict[str, tuple[tuple[float, float], ...]]:
    queries, plain = (query, 0.0), (1.0, 0.0)
    return {
        "encoder.blocks.{}.attention.qkv": (queries, plain, plain),
        "blocks.{}.attention.qkv": (queries, plain, plain),
        "blocks.{}.cross_attention.query": (queries,),
        "norm": ((last, 0.0),),
    }
