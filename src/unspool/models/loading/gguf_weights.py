"""Load the model of a GGUF file: its metadata and tensor names are translated to those of Hugging Face.

The configuration is then read by the same code as a folder (`causal_families`). What differs in GGUF files:

- llama.cpp rotates adjacent pairs (2i, 2i+1) of a Llama head, Hugging Face and this package (i, i + I/2). So
  Llama files store the rows of queries and keys in another order (`gguf_file`).
- Files of Llama 3.1 and later store their frequency scaling as a table, `rope_freqs.weight`. Its parameters
  are recovered with Llama 3's thresholds; a table that they do not reproduce is rejected.
- The gains of Gemma's norms are complete (Hugging Face stores gain − 1).
- The tensors tell which modules have a bias, and whether the head is tied.
- Files do not say which layers have a sliding window or no positions; these rules are llama.cpp's.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch

from unspool.interfaces import TokenizerLike
from unspool.models.loading.assembly import build_model, errors_with_label
from unspool.models.loading.causal_families import CAUSAL_FAMILIES, ConfigAndLayout, with_sliding_window
from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.models.loading.gguf_file import GGUFFile
from unspool.models.loading.weight_layout import SourcePart, WeightLayout
from unspool.models.loading.weights import WeightFormat
from unspool.models.transformer_lm import TransformerLM
from unspool.nn.positions import RotaryScaling

ARCHITECTURES = {name: name for name in CAUSAL_FAMILIES if name not in ("gemma3_text", "mistral")} | {
    "gemma3": "gemma3_text"
}
"""llama.cpp's architecture → Hugging Face's `model_type`; Mistral is a "llama"."""
_KEYS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
_FAMILY_KEYS = {
    "gpt2": {
        "n_embd": "embedding_length",
        "n_layer": "block_count",
        "n_head": "attention.head_count",
        "n_inner": "feed_forward_length",
        "n_positions": "context_length",
        "layer_norm_epsilon": "attention.layer_norm_epsilon",
    },
    "granite": {
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
        "attention_multiplier": "attention.scale",
    },
    "gemma2": {"sliding_window": "attention.sliding_window"},
    "gemma3": {
        "sliding_window": "attention.sliding_window",
        "rope_local_base_freq": "rope.freq_base_swa",
    },
}
"""Key of config.json → key of the metadata, if they differ: for all families and for some."""
_NAMES = {
    "embed": ("token_embd",),
    "positions": ("position_embd",),
    "norm": ("output_norm",),
    "head": ("output",),
    "blocks.{}.attention_norm": ("blk.{}.attn_norm",),
    "blocks.{}.attention.norm.query": ("blk.{}.attn_q_norm",),
    "blocks.{}.attention.norm.key": ("blk.{}.attn_k_norm",),
    "blocks.{}.attention.qkv": ("blk.{}.attn_q", "blk.{}.attn_k", "blk.{}.attn_v"),
    "blocks.{}.attention.out": ("blk.{}.attn_output",),
    "blocks.{}.attention_post_norm": ("blk.{}.post_attention_norm",),
    "blocks.{}.feed_forward_norm": ("blk.{}.ffn_norm",),
    "blocks.{}.feed_forward.up": ("blk.{}.ffn_gate", "blk.{}.ffn_up"),
    "blocks.{}.feed_forward.down": ("blk.{}.ffn_down",),
    "blocks.{}.feed_forward_post_norm": ("blk.{}.post_ffw_norm",),
}
_FUSED = {
    "blocks.{}.attention.qkv": ("blk.{}.attn_qkv",),
    "blocks.{}.feed_forward.up": ("blk.{}.ffn_up",),
}
_FAMILY_NAMES = {
    "gpt2": _FUSED,
    "phi3": _FUSED,
    "olmo2": {
        "blocks.{}.attention_norm": ("blk.{}.post_attention_norm",),
        "blocks.{}.feed_forward_norm": ("blk.{}.post_ffw_norm",),
    },
}
"""Our module → tensor names, for all families and for some."""
_BIASES = {
    "attention.qkv": "blk.0.attn_q.bias",
    "attention.out": "blk.0.attn_output.bias",
    "feed_forward.up": "blk.0.ffn_up.bias",
    "feed_forward.down": "blk.0.ffn_down.bias",
}
_INTERLEAVED = ("granite", "llama", "smollm3")
_ROPE_FREQS = "rope_freqs.weight"
_LLAMA3_THRESHOLDS = (1.0, 4.0, 8192)
"""Llama 3's low_freq_factor, high_freq_factor and original context."""
_WINDOW_PATTERNS = {"gemma2": 2, "gemma3": 6}
"""All layers except every n-th have a sliding window."""
_LARGEST_GEMMAS = {"gemma2": 46, "gemma3": 62}
"""Layer counts of the models (27B) whose attention scores are divided by √(D/H) instead of √I."""


def load_gguf(
    file: GGUFFile, tokenizer: TokenizerLike | None = None, weights: WeightFormat = "float32"
) -> TransformerLM:
    config, layout = read_gguf_config(file)
    return build_model(config, file, layout, tokenizer, weights)


def read_gguf_config(file: GGUFFile) -> ConfigAndLayout:
    general = ConfigReader(file.label, file.metadata)
    if general.get("split.count", 1) != 1:
        raise ValueError(f"{file.label}: a split file; merge its parts with llama.cpp's gguf-split --merge")
    architecture = general.string("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(
            f"{file.label}: architecture {architecture!r:.40} is unknown; known are {known}"
        )
    with errors_with_label(file.label):
        return _read_config(file, architecture)


def _read_config(file: GGUFFile, architecture: str) -> ConfigAndLayout:
    prefix = f"{architecture}."
    keys = _FAMILY_KEYS["gpt2"] if architecture == "gpt2" else _KEYS | _FAMILY_KEYS.get(architecture, {})
    names = {key.removeprefix(prefix): key for key in file.metadata if key.startswith(prefix)}
    names |= {ours: prefix + key for ours, key in keys.items()}
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ValueError(f"{file.label}: tensor 'token_embd.weight' is missing")
    values: dict[str, Any] = {
        **file.metadata,
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    settings = ConfigReader(file.label, values, names)
    if architecture == "gpt2":
        config, _ = CAUSAL_FAMILIES["gpt2"](settings)
        return config, WeightLayout(_NAMES | _FUSED)
    settings.require("expert_count", 0)
    settings.require("attention.causal", True)
    if settings.get("rope.scaling.type") != "linear":
        settings.require("rope.scaling.type", "none")
    if "rope_factors_long.weight" in file.tensors:
        raise UnsupportedModelError(f"{file.label}: rotary scaling by tables (longrope) is not supported")
    for key in ("max_position_embeddings", "rms_norm_eps"):
        settings.number(key)  # no defaults here, unlike in config.json
    heads, width = settings.integer("num_attention_heads"), settings.integer("hidden_size")
    head_width = settings.integer("head_dim", max(1, width // heads))
    settings.require("attention.value_length", head_width)
    rotary_width = settings.integer("rope.dimension_count", head_width)
    if architecture in _INTERLEAVED:
        settings.require("rope.dimension_count", head_width)  # a part of a head cannot be deinterleaved
    if architecture in _WINDOW_PATTERNS:
        settings.require("attention.sliding_window_pattern", _WINDOW_PATTERNS[architecture])
        is_largest = settings.integer("num_hidden_layers") == _LARGEST_GEMMAS[architecture]
        values["query_pre_attn_scalar"] = width / heads if is_largest else head_width
    if architecture == "granite":
        values.setdefault("granite.attention.scale", head_width**-0.5)
    values["rope_scaling"] = _rope_scaling(file, settings, head_width)
    config, layout = CAUSAL_FAMILIES[ARCHITECTURES[architecture]](settings)
    if architecture not in _WINDOW_PATTERNS and settings.get("attention.sliding_window", 0) != 0:
        window = settings.integer("attention.sliding_window")
        config = with_sliding_window(config, window, range(config.layers))
    biased = {module for module, name in _BIASES.items() if name in file.tensors}
    config = replace(
        config,
        rotary_width=None if rotary_width == head_width else rotary_width,
        bias=bool(biased - {"attention.qkv"}),
        qkv_bias=biased == {"attention.qkv"},
    )
    return config, WeightLayout(
        _NAMES | _FAMILY_NAMES.get(architecture, {}),
        interleaved=architecture in _INTERLEAVED,
        ignored=re.escape(_ROPE_FREQS),
        unbiased=frozenset(_BIASES) - biased,
        affine={module: tuple((scale, 0.0) for scale, _ in parts) for module, parts in layout.affine.items()},
    )


def _rope_scaling(file: GGUFFile, settings: ConfigReader, head_width: int) -> dict[str, Any]:
    """The table `rope_scaling` of config.json."""
    if settings.get("rope.scaling.type") == "linear":
        return {"rope_type": "linear", "factor": settings.number("rope.scaling.factor")}
    if _ROPE_FREQS not in file.tensors:
        return {}
    shape = file.tensors[_ROPE_FREQS].shape
    if shape != (head_width // 2,):
        raise ValueError(f"{file.label}: {_ROPE_FREQS} has shape {list(shape)}; expected [{head_width // 2}]")
    stretch = torch.empty(shape)
    file.fill(SourcePart(_ROPE_FREQS, shape), stretch)
    scaling = RotaryScaling(float(stretch.max()), *_LLAMA3_THRESHOLDS)
    base = settings.number("rope_theta", 10000.0)
    omega = 1.0 / base ** (torch.arange(0, head_width, 2) / head_width)
    if not torch.allclose(omega / scaling.frequencies(omega), stretch, rtol=1e-4):
        raise ValueError(
            f"{file.label}: {_ROPE_FREQS} does not scale frequencies as Llama 3 does "
            f"(factor {scaling.factor:g}); no other scaling is supported"
        )
    keys = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    thresholds = dict(zip(keys, _LLAMA3_THRESHOLDS, strict=True))
    return {"rope_type": "llama3", "factor": scaling.factor, **thresholds}
