"""Read the model configuration and weights of a GGUF file: Llama and similar families, GPT-2, Gemma 2 and 3.

llama.cpp rotates adjacent pairs (2i, 2i+1) of a Llama head, Hugging Face and this package (i, i + I/2). So
Llama files store the rows of queries and keys in another order, which is undone here:

    stored row  2i + s   of a head   ←→   our row  s·I/2 + i,    s ∈ {0, 1}

Files of Llama 3.1 and later store their frequency scaling as a table, `rope_freqs.weight`. Its parameters are
recovered with Llama 3's thresholds; a table that they do not reproduce is rejected.

Families that differ from Llama (their readers take Llama's configuration and layout and change them):

    OLMo 2       qk-norm over all heads; norms after the branches
    Phi-3        fused q, k, v and fused gate, up; partial rotary positions
    SmolLM3      every fourth layer without positions; interleaved rows of q and k
    Gemma 2, 3   norms before and after every branch, scaled embeddings, sliding windows; caps or qk-norm

GGUF files store the full gains of Gemma's norms (Hugging Face stores gain − 1). They do not say which layers
have a sliding window or no positions; these rules are llama.cpp's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from unspool.heads import CappedHeadConfig
from unspool.models.loading.assembly import errors_with_label, read_tensors
from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.models.loading.llama_families import (
    ConfigAndLayout,
    divide_width,
    with_names,
    with_sliding_window,
)
from unspool.models.loading.weight_layout import SourcePart, WeightLayout, plan_tensors
from unspool.models.loading.weights import StateDict, WeightFormat
from unspool.models.transformer_lm import TransformerConfig
from unspool.nn.positions import RotaryScaling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from unspool.engine.stored_weights import StoredWeight
    from unspool.models.loading.gguf_file import GGUFFile

FamilyChange = Callable[[TransformerConfig, WeightLayout, "GGUFFile", ConfigReader], ConfigAndLayout]
"""Turns Llama's configuration and layout into those of a family."""

_QUERY_NORM, _KEY_NORM = "blk.{}.attn_q_norm", "blk.{}.attn_k_norm"
_POST_ATTENTION_NORM, _POST_FFW_NORM = "blk.{}.post_attention_norm", "blk.{}.post_ffw_norm"
_NO_ROPE_INTERVAL = 4
"""SmolLM3: every fourth layer has no positions."""
_GEMMA2_27B, _GEMMA3_27B = 46, 62
"""Layer counts of the models whose attention scores are divided by √(D/H) instead of √I."""


def _with_qk_norm(layout: WeightLayout) -> WeightLayout:
    return with_names(layout, attention__norm__query=(_QUERY_NORM,), attention__norm__key=(_KEY_NORM,))


def _qwen3(config: TransformerConfig, layout: WeightLayout, _: GGUFFile, __: ConfigReader) -> ConfigAndLayout:
    return replace(config, qk_norm="head"), _with_qk_norm(layout)


def _olmo2(config: TransformerConfig, layout: WeightLayout, _: GGUFFile, __: ConfigReader) -> ConfigAndLayout:
    layout = with_names(
        _with_qk_norm(layout), attention_norm=(_POST_ATTENTION_NORM,), feed_forward_norm=(_POST_FFW_NORM,)
    )
    return replace(config, qk_norm="whole", norm_place="after"), layout


def _phi3(
    config: TransformerConfig, layout: WeightLayout, file: GGUFFile, _: ConfigReader
) -> ConfigAndLayout:
    if "rope_factors_long.weight" in file.tensors:
        raise UnsupportedModelError(f"{file.path}: rotary scaling by tables (longrope) is not supported")
    fused = {"attention__qkv": ("blk.{}.attn_qkv",), "feed_forward__up": ("blk.{}.ffn_up",)}
    return config, with_names(layout, **fused)


def _smollm3(
    config: TransformerConfig, layout: WeightLayout, _: GGUFFile, settings: ConfigReader
) -> ConfigAndLayout:
    settings.require("rope.dimension_count", config.each_width)  # partial heads cannot be deinterleaved
    unrotated = tuple(layer for layer in range(config.layers) if (layer + 1) % _NO_ROPE_INTERVAL == 0)
    return replace(config, unrotated_layers=unrotated), replace(layout, interleaved=True)


def _gemma(
    config: TransformerConfig, layout: WeightLayout, settings: ConfigReader, every: int
) -> ConfigAndLayout:
    """Gemma 2 and 3; all layers except every `every`-th have a sliding window."""
    window: int | None = None
    windowed: tuple[int, ...] = ()
    if settings.has("attention.sliding_window"):
        settings.require("attention.sliding_window_pattern", every)
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
    return config, with_names(
        layout, attention_post_norm=(_POST_ATTENTION_NORM,), feed_forward_post_norm=(_POST_FFW_NORM,)
    )


def _query_scale(config: TransformerConfig, largest: int) -> float:
    """Query factor that turns our 1/√I into √(H/D), which only the largest model of a family uses."""
    return math.sqrt(config.each_width * config.heads / config.width) if config.layers == largest else 1.0


def _gemma2(
    config: TransformerConfig, layout: WeightLayout, _: GGUFFile, settings: ConfigReader
) -> ConfigAndLayout:
    config, layout = _gemma(config, layout, settings, 2)
    scale = _query_scale(config, _GEMMA2_27B)
    config = replace(
        config,
        attention_cap=settings.number("attn_logit_softcapping", 50.0),
        head=CappedHeadConfig(settings.number("final_logit_softcapping", 30.0)),
    )
    if scale == 1.0:
        return config, layout
    query = ((scale, 0.0), (1.0, 0.0), (1.0, 0.0))
    return config, replace(layout, affine={"blocks.{}.attention.qkv": query})


def _gemma3(
    config: TransformerConfig, layout: WeightLayout, _: GGUFFile, settings: ConfigReader
) -> ConfigAndLayout:
    config, layout = _gemma(config, layout, settings, 6)
    capped = settings.has("final_logit_softcapping")
    config = replace(
        config,
        qk_norm="head",
        window_rotary_base=settings.number("rope.freq_base_swa", 10000.0),
        head=CappedHeadConfig(settings.number("final_logit_softcapping")) if capped else None,
    )
    scale = _query_scale(config, _GEMMA3_27B)
    return config, replace(_with_qk_norm(layout), affine={"blocks.{}.attention.norm.query": ((scale, 0.0),)})


FAMILIES: dict[str, FamilyChange] = {
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
}
"""llama.cpp architecture → its change to Llama."""


_OUTER_NAMES = {"embed": ("token_embd",), "norm": ("output_norm",), "head": ("output",)}
_BLOCK_NAMES = {
    "blocks.{}.attention_norm": ("blk.{}.attn_norm",),
    "blocks.{}.attention.out": ("blk.{}.attn_output",),
    "blocks.{}.feed_forward_norm": ("blk.{}.ffn_norm",),
    "blocks.{}.feed_forward.down": ("blk.{}.ffn_down",),
}
_LLAMA_NAMES = {
    **_OUTER_NAMES,
    **_BLOCK_NAMES,
    "blocks.{}.attention.qkv": ("blk.{}.attn_q", "blk.{}.attn_k", "blk.{}.attn_v"),
    "blocks.{}.feed_forward.up": ("blk.{}.ffn_gate", "blk.{}.ffn_up"),
}
_GPT2_NAMES = {
    **_OUTER_NAMES,
    **_BLOCK_NAMES,
    "positions": ("position_embd",),
    "blocks.{}.attention.qkv": ("blk.{}.attn_qkv",),
    "blocks.{}.feed_forward.up": ("blk.{}.ffn_up",),
}
_ROPE_FREQS = "rope_freqs.weight"
_LLAMA3_THRESHOLDS = (1.0, 4.0, 8192)
"""Llama 3's low_freq_factor, high_freq_factor and original context."""


@dataclass(frozen=True)
class _GGUFSource:
    """A GGUF file as a TensorSource."""

    file: GGUFFile

    @property
    def label(self) -> str:
        return str(self.file.path)

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.file.tensors.items()}

    def stored(self, part: SourcePart) -> StoredWeight | None:
        assert part.source is not None
        return self.file.stored(part.source, _row_order(part))

    def fill(self, part: SourcePart, out: Tensor) -> None:
        assert part.source is not None
        self.file.fill(part.source, out, _row_order(part))

    def release(self, part: SourcePart) -> None:
        assert part.source is not None
        self.file.release(part.source)


def _row_order(part: SourcePart) -> Tensor | None:
    return deinterleaved_rows(part.heads, part.shape[0]) if part.heads else None


def deinterleaved_rows(heads: int, rows: int) -> Tensor:
    """For each of our rows, the index of the stored row."""
    return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).reshape(-1)


def gguf_config(file: GGUFFile) -> TransformerConfig:
    """The model configuration of a GGUF file."""
    return _read_config(file)[0]


def gguf_weights(file: GGUFFile, weights: WeightFormat = "float32") -> tuple[TransformerConfig, StateDict]:
    """The configuration and state dict of the model in a GGUF file."""
    config, layout = _read_config(file)
    return config, read_tensors(_GGUFSource(file), plan_tensors(config, layout), layout.ignored, weights)


def _read_config(file: GGUFFile) -> ConfigAndLayout:
    general = ConfigReader(str(file.path), file.metadata)
    if general.has("split.count") and file.metadata["split.count"] != 1:
        raise ValueError(f"{file.path}: a split file; merge its parts with llama.cpp's gguf-split --merge")
    architecture = general.string("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(
            f"{file.path}: architecture {architecture!r:.40} is unknown; known are {known}"
        )
    with errors_with_label(str(file.path)):
        return ARCHITECTURES[architecture](
            file, ConfigReader(str(file.path), file.metadata, architecture + ".")
        )


def _gpt2(file: GGUFFile, settings: ConfigReader) -> ConfigAndLayout:
    heads, width = settings.integer("attention.head_count"), settings.integer("embedding_length")
    config = TransformerConfig(
        vocab_size=_vocab_size(file),
        width=width,
        layers=settings.integer("block_count"),
        heads=heads,
        kv_heads=heads,
        head_width=_head_width(settings, width, heads),
        inner_width=settings.integer("feed_forward_length"),
        context=settings.integer("context_length"),
        norm="layer",
        norm_eps=_norm_eps(settings, "attention.layer_norm_epsilon"),
        positions="learned",
        activation="gelu_tanh",
        bias=True,
        tied="output.weight" not in file.tensors,
    )
    return config, WeightLayout(_GPT2_NAMES)


def _llama(file: GGUFFile, settings: ConfigReader) -> ConfigAndLayout:
    settings.require("expert_count", 0)
    settings.require("attention.causal", True)
    is_scaled = settings.string("rope.scaling.type", "none") == "linear"
    if not is_scaled:
        settings.require("rope.scaling.type", "none")
    heads, width = settings.integer("attention.head_count"), settings.integer("embedding_length")
    kv_heads = settings.integer("attention.head_count_kv", heads)
    head_width = settings.integer("attention.key_length", _head_width(settings, width, heads))
    settings.require("attention.value_length", head_width)
    rotary_width = settings.integer("rope.dimension_count", head_width)
    base = settings.number("rope.freq_base", 10000.0)
    biases, unbiased = _biases(file)
    config = TransformerConfig(
        vocab_size=_vocab_size(file),
        width=width,
        layers=settings.integer("block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        inner_width=settings.integer("feed_forward_length"),
        context=settings.integer("context_length"),
        norm_eps=_norm_eps(settings, "attention.layer_norm_rms_epsilon"),
        rotary_base=base,
        rotary_scaling=_scaling(file, head_width, base),
        rotary_factor=settings.number("rope.scaling.factor") if is_scaled else 1.0,
        rotary_width=None if rotary_width == head_width else rotary_width,
        bias=biases == "all",
        qkv_bias=biases == "qkv",
        tied="output.weight" not in file.tensors,
    )
    window = settings.values.get(settings.prefix + "attention.sliding_window", 0)
    if window != 0:  # 0 means no window
        config = with_sliding_window(
            config, settings.integer("attention.sliding_window"), range(config.layers)
        )
    return config, WeightLayout(_LLAMA_NAMES, ignored=re.escape(_ROPE_FREQS), unbiased=unbiased)


def _interleaved_llama(file: GGUFFile, settings: ConfigReader) -> ConfigAndLayout:
    config, layout = _llama(file, settings)
    settings.require("rope.dimension_count", config.each_width)
    return config, replace(layout, interleaved=True)


def _like_llama(
    change: FamilyChange,
) -> Callable[[GGUFFile, ConfigReader], ConfigAndLayout]:
    return lambda file, settings: change(*_llama(file, settings), file, settings)


def _granite(file: GGUFFile, settings: ConfigReader) -> ConfigAndLayout:
    config, layout = _interleaved_llama(file, settings)
    branch = (settings.number("residual_scale", 1.0), 0.0)
    # Our attention scores are divided by √I; Granite multiplies them by attention.scale.
    default = config.each_width**-0.5
    query = settings.number("attention.scale", default) / default
    return replace(config, embed_scale=settings.number("embedding_scale", 1.0)), replace(
        layout,
        affine={
            "blocks.{}.attention.qkv": ((query, 0.0), (1.0, 0.0), (1.0, 0.0)),
            "blocks.{}.attention.out": (branch,),
            "blocks.{}.feed_forward.down": (branch,),
            "norm": ((1 / settings.number("logit_scale", 1.0), 0.0),),
        },
    )


ARCHITECTURES: dict[str, Callable[[GGUFFile, ConfigReader], ConfigAndLayout]] = {
    "gpt2": _gpt2,
    "granite": _granite,
    "llama": _interleaved_llama,
    "qwen2": _llama,
    **{name: _like_llama(change) for name, change in FAMILIES.items()},
}


def _vocab_size(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ValueError(f"{file.path}: tensor 'token_embd.weight' is missing")
    return embedding.shape[0]


def _head_width(settings: ConfigReader, width: int, heads: int) -> int:
    if settings.has("attention.key_length"):
        return max(1, width // heads)
    return divide_width(settings, width, heads)


def _norm_eps(settings: ConfigReader, key: str) -> float:
    """The intended ε: GGUF stores 1e-5 as the nearest float32, 9.999999747378752e-06."""
    return float(np.format_float_scientific(np.float32(settings.number(key)), unique=True))


def _biases(file: GGUFFile) -> tuple[str, frozenset[str]]:
    """Kind of biases ("none", "qkv" or "all") and modules without one, from the first layer's tensors."""
    has_bias = {
        "attention.qkv": "blk.0.attn_q.bias" in file.tensors,
        "attention.out": "blk.0.attn_output.bias" in file.tensors,
        "feed_forward.up": "blk.0.ffn_up.bias" in file.tensors,
        "feed_forward.down": "blk.0.ffn_down.bias" in file.tensors,
    }
    if not any(has_bias.values()):
        return "none", frozenset()
    if has_bias["attention.qkv"] and sum(has_bias.values()) == 1:
        return "qkv", frozenset()
    return "all", frozenset(module for module, present in has_bias.items() if not present)


def _scaling(file: GGUFFile, head_width: int, base: float) -> RotaryScaling | None:
    if _ROPE_FREQS not in file.tensors:
        return None
    if file.tensors[_ROPE_FREQS].shape != (head_width // 2,):
        shape = list(file.tensors[_ROPE_FREQS].shape)
        raise ValueError(f"{file.path}: {_ROPE_FREQS} has shape {shape}; expected [{head_width // 2}]")
    stretch = torch.empty(head_width // 2)
    file.fill(_ROPE_FREQS, stretch)
    scaling = RotaryScaling(float(stretch.max()), *_LLAMA3_THRESHOLDS)
    omega = 1.0 / base ** (torch.arange(0, head_width, 2) / head_width)
    if not torch.allclose(omega / scaling(omega), stretch, rtol=1e-4):
        raise ValueError(
            f"{file.path}: {_ROPE_FREQS} does not scale frequencies as Llama 3 does "
            f"(factor {scaling.factor:g}); no other scaling is supported"
        )
    return scaling
