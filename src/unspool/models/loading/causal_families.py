"""Hugging Face configurations and weight layouts of language models: GPT-2, Llama and families like it.

    Llama, SmolLM, Mistral    the base
    Qwen 2                    a bias in q, k and v
    Qwen 3                    qk-norm per head
    OLMo 2                    qk-norm over all heads; norms after the branches
    Phi-3                     fused q, k, v and fused gate, up; partial rotary positions
    SmolLM3                   some layers without positions
    Granite                   factors on embeddings, scores, branches and logits
    Gemma 2, 3                norms before and after every branch (stored as gain − 1), embeddings × √D,
                              another score scale, sliding windows; Gemma 2 caps scores and logits
                              (`heads.nonlinear`), Gemma 3 has qk-norm and another rotary base in windows

Sliding-window attention covers every layer of Mistral and Phi-3, elsewhere the layers in `layer_types`. The
context is `max_position_embeddings`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from unspool.heads import CappedHeadConfig
from unspool.models.loading.config_reader import ConfigReader
from unspool.models.loading.weight_layout import WeightLayout
from unspool.models.transformer_lm import TransformerConfig
from unspool.nn.positions import RotaryScaling, YarnScaling

ConfigAndLayout = tuple[TransformerConfig, WeightLayout]
ROPE_TYPES = {name: name for name in ("default", "linear", "llama3", "yarn")}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Hugging Face's name of an activation → ours."""


def rotary_settings(
    settings: ConfigReader, head_width: int, rope: ConfigReader | None = None
) -> dict[str, Any]:
    """The rotary fields of a TransformerConfig; `rope` is the table, if a model has several.

    transformers 5 writes the table as rope_parameters, older versions as rope_scaling.
    """
    if rope is None:
        rope = settings.table("rope_parameters" if settings.has("rope_parameters") else "rope_scaling")
    base = rope.number("rope_theta", settings.number("rope_theta", 10000.0))
    fields: dict[str, Any] = {"rotary_base": base}
    share = rope.number("partial_rotary_factor", settings.number("partial_rotary_factor", 1.0))
    if share != 1.0:
        fields["rotary_width"] = int(head_width * share)
    kind = rope.choose("rope_type", ROPE_TYPES, rope.string("type", "default"))
    context = settings.integer("max_position_embeddings", 2048)
    if kind == "linear":
        fields["rotary_factor"] = rope.number("factor")
    if kind == "llama3":
        fields["rotary_scaling"] = RotaryScaling(
            factor=rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_context=rope.integer("original_max_position_embeddings", context),
        )
    if kind == "yarn":
        fields["rotary_yarn"] = _yarn(rope, context)
    return fields


def _yarn(rope: ConfigReader, context: int) -> YarnScaling:
    original = rope.integer("original_max_position_embeddings", context)
    factor = rope.number("factor", context / original)
    for key in ("mscale", "mscale_all_dim"):  # of DeepSeek
        rope.require(key, None)
    betas = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    attention_factor = rope.number("attention_factor") if rope.has("attention_factor") else None
    return YarnScaling(factor, original, *betas, attention_factor, rope.flag("truncate", True))


_LAYER = "model.layers.{}."
LLAMA = WeightLayout(
    {
        "embed": ("model.embed_tokens",),
        "norm": ("model.norm",),
        "head": ("lm_head",),
        "blocks.{}.attention_norm": (_LAYER + "input_layernorm",),
        "blocks.{}.attention.qkv": tuple(f"{_LAYER}self_attn.{part}_proj" for part in "qkv"),
        "blocks.{}.attention.out": (_LAYER + "self_attn.o_proj",),
        "blocks.{}.feed_forward_norm": (_LAYER + "post_attention_layernorm",),
        "blocks.{}.feed_forward.up": (_LAYER + "mlp.gate_proj", _LAYER + "mlp.up_proj"),
        "blocks.{}.feed_forward.down": (_LAYER + "mlp.down_proj",),
    },
    ignored=r".*rotary_emb\.inv_freq",
)
QUERY_KEY_NORMS = {
    "blocks.{}.attention.norm.query": (_LAYER + "self_attn.q_norm",),
    "blocks.{}.attention.norm.key": (_LAYER + "self_attn.k_norm",),
}


def with_names(layout: WeightLayout, **names: Any) -> WeightLayout:
    """The layout with other names for some block modules; "." is written as "__"."""
    ours = {"blocks.{}." + name.replace("__", "."): theirs for name, theirs in names.items()}
    return replace(layout, names={**layout.names, **ours})


def _read_config(
    settings: ConfigReader, context: int, activation: Literal["geglu", "swiglu"] = "swiglu", **more: Any
) -> TransformerConfig:
    """The settings that the families like Llama share; `context` is its default."""
    settings.require("hidden_act" if activation == "swiglu" else "hidden_activation", HIDDEN_ACTS[activation])
    width, heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    head_width = (
        settings.integer("head_dim") if settings.has("head_dim") else divide_width(settings, width, heads)
    )
    return TransformerConfig(
        vocab_size=settings.integer("vocab_size"),
        width=width,
        layers=settings.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=settings.integer("num_key_value_heads", heads),
        head_width=head_width,
        inner_width=settings.integer("intermediate_size"),
        context=settings.integer("max_position_embeddings", context),
        norm_eps=settings.number("rms_norm_eps", 1e-6),
        activation=activation,
        tied=settings.flag("tie_word_embeddings", activation == "geglu"),
        **(more if "rotary_base" in more else rotary_settings(settings, head_width) | more),
    )


def divide_width(settings: ConfigReader, width: int, heads: int) -> int:
    if width % heads:
        raise ValueError(f"{settings.source}: the width {width} is not a multiple of {heads} heads")
    return width // heads


def _with_biases(settings: ConfigReader, config: TransformerConfig) -> ConfigAndLayout:
    attention, feed_forward = settings.flag("attention_bias", False), settings.flag("mlp_bias", False)
    unbiased = {"attention.qkv", "attention.out"} if not attention else set()
    unbiased |= {"feed_forward.up", "feed_forward.down"} if not feed_forward else set()
    return replace(config, bias=attention or feed_forward), replace(LLAMA, unbiased=frozenset(unbiased))


def _windowed_layers(settings: ConfigReader, layers: int, default: Sequence[int]) -> tuple[int, ...]:
    """The sliding-window layers: those that `layer_types` names, else the family's default."""
    kinds = settings.get("layer_types")
    if kinds is None:
        return tuple(default)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise ValueError(f"{settings.source}: layer_types must have an entry for each of the {layers} layers")
    return tuple(n for n, kind in enumerate(kinds) if kind == "sliding_attention")


def with_sliding_window(config: TransformerConfig, window: int, layers: Sequence[int]) -> TransformerConfig:
    """The config with sliding-window attention in `layers`, unless the window covers the context."""
    if not layers or (config.context is not None and window >= config.context):
        return config
    return replace(config, window=window, windowed_layers=tuple(layers))


def _sliding_if_used(
    settings: ConfigReader, config: TransformerConfig, default: Sequence[int], window: int | None = None
) -> TransformerConfig:
    """The config with a sliding window if `use_sliding_window` is set; `window` is its default size."""
    if not settings.flag("use_sliding_window", False) or settings.get("sliding_window", window) is None:
        return config
    layers = _windowed_layers(settings, config.layers, default)
    return with_sliding_window(config, settings.integer("sliding_window", window), layers)


def _qwen_layers(settings: ConfigReader, config: TransformerConfig) -> range:
    first = settings.get("max_window_layers", 28)
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise ValueError(f"{settings.source}: max_window_layers is {first!r:.80}; expected a whole number")
    return range(min(first, config.layers), config.layers)


def _llama(settings: ConfigReader) -> ConfigAndLayout:
    return _with_biases(settings, _read_config(settings, 2048))


def _mistral(settings: ConfigReader) -> ConfigAndLayout:
    config = _read_config(settings, 131072)
    # Absent means Mistral's default window of 4096, null means no window.
    if settings.get("sliding_window", 4096) is None:
        return config, LLAMA
    return with_sliding_window(config, settings.integer("sliding_window", 4096), range(config.layers)), LLAMA


def _qwen2(settings: ConfigReader) -> ConfigAndLayout:
    config = _read_config(settings, 32768, qkv_bias=True)
    return _sliding_if_used(settings, config, _qwen_layers(settings, config), 4096), LLAMA


def _qwen3(settings: ConfigReader) -> ConfigAndLayout:
    config, layout = _with_biases(settings, _read_config(settings, 32768, qk_norm="head"))
    config = _sliding_if_used(settings, config, _qwen_layers(settings, config), 4096)
    return config, replace(layout, names={**layout.names, **QUERY_KEY_NORMS})


def _olmo2(settings: ConfigReader) -> ConfigAndLayout:
    config, layout = _with_biases(settings, _read_config(settings, 2048, qk_norm="whole", norm_place="after"))
    layout = with_names(
        layout,
        attention_norm=(_LAYER + "post_attention_layernorm",),
        feed_forward_norm=(_LAYER + "post_feedforward_layernorm",),
    )
    return config, replace(layout, names={**layout.names, **QUERY_KEY_NORMS})


def _phi3(settings: ConfigReader) -> ConfigAndLayout:
    config = _read_config(settings, 4096)
    fused = {
        "attention__qkv": (_LAYER + "self_attn.qkv_proj",),
        "feed_forward__up": (_LAYER + "mlp.gate_up_proj",),
    }
    if settings.has("sliding_window"):
        config = with_sliding_window(config, settings.integer("sliding_window"), range(config.layers))
    return config, with_names(LLAMA, **fused)


def _smollm3(settings: ConfigReader) -> ConfigAndLayout:
    config, layout = _with_biases(settings, _read_config(settings, 32768))
    every = settings.integer("no_rope_layer_interval", 4)
    rotated = settings.get("no_rope_layers") or [int((n + 1) % every != 0) for n in range(config.layers)]
    if not isinstance(rotated, list) or len(rotated) != config.layers:
        raise ValueError(f"{settings.source}: no_rope_layers must have a 0 or a 1 for each layer")
    unrotated = tuple(n for n, is_rotated in enumerate(rotated) if not is_rotated)
    config = _sliding_if_used(settings, config, unrotated)
    return replace(config, unrotated_layers=unrotated), layout


def _granite(settings: ConfigReader) -> ConfigAndLayout:
    config, layout = _with_biases(
        settings, _read_config(settings, 2048, embed_scale=settings.number("embedding_multiplier", 1.0))
    )
    branch = (settings.number("residual_multiplier", 1.0), 0.0)
    # Our attention scores are divided by √I; Granite multiplies them by attention_multiplier.
    query = settings.number("attention_multiplier", 1.0) * math.sqrt(config.each_width)
    return config, replace(
        layout,
        affine={
            "blocks.{}.attention.qkv": ((query, 0.0), (1.0, 0.0), (1.0, 0.0)),
            "blocks.{}.attention.out": (branch,),
            "blocks.{}.feed_forward.down": (branch,),
            "norm": ((1 / settings.number("logits_scaling", 1.0), 0.0),),
        },
    )


GEMMA = with_names(
    LLAMA,
    attention_post_norm=(_LAYER + "post_attention_layernorm",),
    feed_forward_norm=(_LAYER + "pre_feedforward_layernorm",),
    feed_forward_post_norm=(_LAYER + "post_feedforward_layernorm",),
)
HIDDEN_ACTS = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}
MINUS_ONE = ((1.0, 1.0),)
"""Scale and offset of a gain that is stored as gain − 1."""
NORM_GAINS = {"norm": MINUS_ONE} | {
    f"blocks.{{}}.{branch}{place}norm": MINUS_ONE
    for branch in ("attention", "feed_forward")
    for place in ("_", "_post_")
}


def _gemma(settings: ConfigReader, every: int, **more: Any) -> TransformerConfig:
    """By default all layers except every `every`-th have a sliding window."""
    settings.require("attention_bias", False)
    settings.require("use_bidirectional_attention", False)
    layers = settings.integer("num_hidden_layers")
    return _read_config(
        settings,
        8192,
        "geglu",
        norm_place="both",
        embed_scale=math.sqrt(settings.integer("hidden_size")),
        window=settings.integer("sliding_window", 4096),
        windowed_layers=_windowed_layers(settings, layers, [n for n in range(layers) if (n + 1) % every]),
        **more,
    )


def _query_scale(settings: ConfigReader, config: TransformerConfig) -> float:
    """Query factor that turns our 1/√I into Gemma's 1/√query_pre_attn_scalar."""
    return math.sqrt(config.each_width / settings.number("query_pre_attn_scalar", 256.0))


def _cap(settings: ConfigReader, key: str, default: float) -> float | None:
    """Absent means Gemma 2's default cap, null means no cap."""
    return None if settings.get(key, default) is None else settings.number(key, default)


def _gemma2(settings: ConfigReader) -> ConfigAndLayout:
    cap = _cap(settings, "final_logit_softcapping", 30.0)
    config = _gemma(
        settings,
        2,
        attention_cap=_cap(settings, "attn_logit_softcapping", 50.0),
        head=None if cap is None else CappedHeadConfig(cap),
    )
    query = ((_query_scale(settings, config), 0.0), (1.0, 0.0), (1.0, 0.0))
    return config, replace(GEMMA, affine=NORM_GAINS | {"blocks.{}.attention.qkv": query})


def _gemma3(settings: ConfigReader) -> ConfigAndLayout:
    for cap in ("final_logit_softcapping", "attn_logit_softcapping"):
        settings.require(cap, None)
    tables = settings.table("rope_parameters")
    head_width = settings.integer("head_dim", 256)
    if tables.has("full_attention"):
        base = tables.table("sliding_attention").number("rope_theta", 10000.0)
        rotary = rotary_settings(settings, head_width, tables.table("full_attention"))
    else:
        base = settings.number("rope_local_base_freq", 10000.0)
        rotary = rotary_settings(settings, head_width, settings.table("rope_scaling"))
        rotary["rotary_base"] = settings.number("rope_theta", 1000000.0)
    every = settings.integer("sliding_window_pattern", 6)
    config = _gemma(settings, every, qk_norm="head", window_rotary_base=base, **rotary)
    scale = _query_scale(settings, config)
    norms = {
        "blocks.{}.attention.norm.query": ((scale, scale),),
        "blocks.{}.attention.norm.key": MINUS_ONE,
    }
    layout = replace(GEMMA, names={**GEMMA.names, **QUERY_KEY_NORMS})
    return config, replace(layout, affine=NORM_GAINS | norms)


GPT2 = WeightLayout(
    {
        "embed": ("transformer.wte",),
        "positions": ("transformer.wpe",),
        "norm": ("transformer.ln_f",),
        "head": ("lm_head",),
        "blocks.{}.attention_norm": ("transformer.h.{}.ln_1",),
        "blocks.{}.attention.qkv": ("transformer.h.{}.attn.c_attn",),
        "blocks.{}.attention.out": ("transformer.h.{}.attn.c_proj",),
        "blocks.{}.feed_forward_norm": ("transformer.h.{}.ln_2",),
        "blocks.{}.feed_forward.up": ("transformer.h.{}.mlp.c_fc",),
        "blocks.{}.feed_forward.down": ("transformer.h.{}.mlp.c_proj",),
    },
    transposed=True,
    ignored=r".*\.attn\.(bias|masked_bias)",
)


def _gpt2(settings: ConfigReader) -> ConfigAndLayout:
    settings.require("scale_attn_weights", True)
    settings.require("scale_attn_by_inverse_layer_idx", False)
    settings.require("add_cross_attention", False)
    activation = settings.choose("activation_function", ACTIVATIONS, "gelu_new")
    width, heads = settings.integer("n_embd"), settings.integer("n_head")
    config = TransformerConfig(
        vocab_size=settings.integer("vocab_size"),
        width=width,
        layers=settings.integer("n_layer"),
        heads=heads,
        kv_heads=heads,
        head_width=divide_width(settings, width, heads),
        inner_width=settings.integer("n_inner", 4 * width),
        context=settings.integer("n_positions", 1024),
        norm="layer",
        norm_eps=settings.number("layer_norm_epsilon", 1e-5),
        positions="learned",
        activation=activation,
        bias=True,
        tied=settings.flag("tie_word_embeddings", True),
    )
    return config, GPT2


CAUSAL_FAMILIES: dict[str, Callable[[ConfigReader], ConfigAndLayout]] = {
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "granite": _granite,
    "llama": _llama,
    "mistral": _mistral,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
}
"""`model_type` → reader of its configuration and weight layout."""
