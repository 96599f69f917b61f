"""GGUF files of families that differ from Llama in an option or two: what they change of its shape and names.

    OLMo 2       q and k normalised as wholes; norms behind the branches
    Phi-3        q, k and v in one matrix, gate and up in another; a part of a head turned
    SmolLM3      every fourth layer without positions; rows of q and k in pairs, as Llama's
    Gemma 2, 3   norms before and behind every branch, scaled embeddings, windows; caps, or q and k normalised

Their files have the gains of Gemma's norms as they are multiplied with (Hugging Face's have them less 1), and
leave to the reader what llama.cpp knows of a family: which layers see a window, and which have no positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from unspool.heads import CappedHeadConfig
from unspool.models.load.dialect import Dialect
from unspool.models.load.llama_families import renamed
from unspool.models.load.settings import Settings
from unspool.models.load.unsupported import UnsupportedModelError
from unspool.models.transformer_lm import TransformerConfig

if TYPE_CHECKING:
    from unspool.models.load.gguf_file import GGUFFile

Shaped = tuple[TransformerConfig, Dialect]
Change = Callable[[TransformerConfig, Dialect, "GGUFFile", Settings], Shaped]
"""What a family makes of Llama's shape and names."""

_QUERY_NORM, _KEY_NORM = "blk.{}.attn_q_norm", "blk.{}.attn_k_norm"
_BEHIND, _LAST = "blk.{}.post_attention_norm", "blk.{}.post_ffw_norm"
_UNTURNED = 4
"""SmolLM3: every so manieth layer has no positions."""
_GEMMA2_27B, _GEMMA3_27B = 46, 62
"""Layers of the models whose scores are divided by √(D/H) instead of √I."""


def _normalised(dialect: Dialect) -> Dialect:
    return renamed(dialect, attention__norm__query=(_QUERY_NORM,), attention__norm__key=(_KEY_NORM,))


def _qwen3(config: TransformerConfig, dialect: Dialect, _: GGUFFile, __: Settings) -> Shaped:
    return replace(config, qk_norm="head"), _normalised(dialect)


def _olmo2(config: TransformerConfig, dialect: Dialect, _: GGUFFile, __: Settings) -> Shaped:
    dialect = renamed(_normalised(dialect), attention_norm=(_BEHIND,), feed_forward_norm=(_LAST,))
    return replace(config, qk_norm="whole", norm_place="after"), dialect


def _phi3(config: TransformerConfig, dialect: Dialect, file: GGUFFile, _: Settings) -> Shaped:
    if "rope_factors_long.weight" in file.tensors:
        raise UnsupportedModelError(
            f"{file.path}: its rotary positions are stretched by tables (longrope), which is not supported"
        )
    fused = {"attention__qkv": ("blk.{}.attn_qkv",), "feed_forward__up": ("blk.{}.ffn_up",)}
    return config, renamed(dialect, **fused)


def _smollm3(config: TransformerConfig, dialect: Dialect, _: GGUFFile, settings: Settings) -> Shaped:
    settings.demand("rope.dimension_count", config.each_width)  # pairs of a part of a head are not undone
    unturned = tuple(layer for layer in range(config.layers) if (layer + 1) % _UNTURNED == 0)
    return replace(config, unrotated_layers=unturned), replace(dialect, interleaved=True)


def _gemma(config: TransformerConfig, dialect: Dialect, settings: Settings, every: int) -> Shaped:
    """All but every so manieth layer see the window."""
    window: int | None = None
    windowed: tuple[int, ...] = ()
    if settings.has("attention.sliding_window"):
        settings.demand("attention.sliding_window_pattern", every)
        window = settings.integer("attention.sliding_window")
        windowed = tuple(layer for layer in range(config.layers) if (layer + 1) % every)
    config = replace(
        config,
        activation="geglu",
        norm_place="both",
        embed_scale=math.sqrt(config.width),
        window=window,
        windowed_layers=windowed,
    )
    return config, renamed(dialect, attention_post_norm=(_BEHIND,), feed_forward_post_norm=(_LAST,))


def _query_scale(config: TransformerConfig, largest: int) -> float:
    """What makes of our 1/√I what the largest model of a family has."""
    return math.sqrt(config.each_width * config.heads / config.width) if config.layers == largest else 1.0


def _gemma2(config: TransformerConfig, dialect: Dialect, _: GGUFFile, settings: Settings) -> Shaped:
    config, dialect = _gemma(config, dialect, settings, 2)
    scale = _query_scale(config, _GEMMA2_27B)
    config = replace(
        config,
        attention_cap=settings.number("attn_logit_softcapping", 50.0),
        head=CappedHeadConfig(settings.number("final_logit_softcapping", 30.0)),
    )
    if scale == 1.0:
        return config, dialect
    query = ((scale, 0.0), (1.0, 0.0), (1.0, 0.0))
    return config, replace(dialect, adjusted={"blocks.{}.attention.qkv": query})


def _gemma3(config: TransformerConfig, dialect: Dialect, _: GGUFFile, settings: Settings) -> Shaped:
    config, dialect = _gemma(config, dialect, settings, 6)
    capped = settings.has("final_logit_softcapping")
    config = replace(
        config,
        qk_norm="head",
        window_rotary_base=settings.number("rope.freq_base_swa", 10000.0),
        head=CappedHeadConfig(settings.number("final_logit_softcapping")) if capped else None,
    )
    scale = _query_scale(config, _GEMMA3_27B)
    adjusted = {"blocks.{}.attention.norm.query": ((scale, 0.0),)}
    return config, replace(_normalised(dialect), adjusted=adjusted)


FAMILIES: dict[str, Change] = {
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
}
"""llama.cpp's architecture → what it changes."""
