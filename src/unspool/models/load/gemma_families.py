"""Hugging Face's configurations of Gemma 2 and 3.

Norms stand before and behind every branch, their gain is stored less 1; embeddings are multiplied by √D,
scores divided by a number of their own; most layers see a window. Gemma 2 bends scores and logits
(`heads.capped`), Gemma 3 normalises queries and keys and turns those of windowed layers by another base.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from unspool.heads import CappedHeadConfig
from unspool.models.load.dialect import Dialect
from unspool.models.load.llama_families import (
    LLAMA,
    QUERY_KEY_NORMS,
    Family,
    llama_like,
    renamed,
    windowed_layers,
)
from unspool.models.load.rotary_settings import rotary_settings
from unspool.models.load.settings import Settings
from unspool.models.transformer_lm import TransformerConfig

_LAYER = "model.layers.{}."
NORMS = ("attention_norm", "attention_post_norm", "feed_forward_norm", "feed_forward_post_norm")
GEMMA = renamed(
    LLAMA,
    attention_post_norm=(_LAYER + "post_attention_layernorm",),
    feed_forward_norm=(_LAYER + "pre_feedforward_layernorm",),
    feed_forward_post_norm=(_LAYER + "post_feedforward_layernorm",),
)
LESS_ONE = ((1.0, 1.0),)
"""A gain that is stored less 1."""
GAINS = {"norm": LESS_ONE, **{f"blocks.{{}}.{norm}": LESS_ONE for norm in NORMS}}


def _gemma(settings: Settings, **more: Any) -> TransformerConfig:
    settings.demand("hidden_activation", "gelu_pytorch_tanh")
    settings.demand("attention_bias", False)
    settings.demand("use_bidirectional_attention", False)
    return llama_like(
        settings,
        settings.integer("max_position_embeddings", 8192),
        "geglu",
        norm_place="both",
        embed_scale=math.sqrt(settings.integer("hidden_size")),
        window=settings.integer("sliding_window", 4096),
        **{"tied": settings.flag("tie_word_embeddings", True)} | more,
    )


def _windowed(settings: Settings, layers: int, every: int) -> tuple[int, ...]:
    """All layers but every so manieth, unless `layer_types` says otherwise."""
    return windowed_layers(settings, layers, [n for n in range(layers) if (n + 1) % every])


def _query_scale(settings: Settings, config: TransformerConfig) -> float:
    """What makes of our 1/√I their 1/√s."""
    return math.sqrt(config.each_width / settings.number("query_pre_attn_scalar", 256.0))


def _gemma2(settings: Settings) -> tuple[TransformerConfig, Dialect]:
    config = _gemma(settings)
    capped = settings.number("final_logit_softcapping", 30.0) if _asked(settings, "final_logit") else None
    config = replace(
        config,
        attention_cap=settings.number("attn_logit_softcapping", 50.0)
        if _asked(settings, "attn_logit")
        else None,
        windowed_layers=_windowed(settings, config.layers, 2),
        head=None if capped is None else CappedHeadConfig(capped),
    )
    query = ((_query_scale(settings, config), 0.0), (1.0, 0.0), (1.0, 0.0))
    return config, replace(GEMMA, adjusted=GAINS | {"blocks.{}.attention.qkv": query})


def _asked(settings: Settings, which: str) -> bool:
    """Absent and null differ: Gemma 2's own default is a cap, null is none."""
    return settings.values.get(f"{which}_softcapping", 1.0) is not None


def _gemma3(settings: Settings) -> tuple[TransformerConfig, Dialect]:
    for cap in ("final_logit_softcapping", "attn_logit_softcapping"):
        settings.demand(cap, None)
    tables = settings.group("rope_parameters")
    head_width = settings.integer("head_dim", 256)
    if tables.has("full_attention"):
        base = tables.group("sliding_attention").number("rope_theta", 10000.0)
        rotary = rotary_settings(settings, head_width, tables.group("full_attention"))
    else:
        base = settings.number("rope_local_base_freq", 10000.0)
        rotary = rotary_settings(settings, head_width, settings.group("rope_scaling"))
        rotary["rotary_base"] = settings.number("rope_theta", 1000000.0)
    config = _gemma(settings, qk_norm="head", window_rotary_base=base, **rotary)
    every = settings.integer("sliding_window_pattern", 6)
    config = replace(config, windowed_layers=_windowed(settings, config.layers, every))
    scale = _query_scale(settings, config)
    norms = {
        "blocks.{}.attention.norm.query": ((scale, scale),),
        "blocks.{}.attention.norm.key": LESS_ONE,
    }
    dialect = replace(GEMMA, names={**GEMMA.names, **QUERY_KEY_NORMS})
    return config, replace(dialect, adjusted=GAINS | norms)


FAMILIES: dict[str, Family] = {"gemma2": _gemma2, "gemma3_text": _gemma3}
