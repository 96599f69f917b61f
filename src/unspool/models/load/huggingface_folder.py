"""A folder as Hugging Face's `save_pretrained` writes it: config.json and safetensors, whole or in shards.

It reads the GPT-2 and Llama families (Llama, SmolLM, Mistral, Qwen 2) in any floating-point type. A model
with a sliding attention window is given the window as its context: within it, sliding attention is full
attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from unspool.models.load.assembly import assemble, named
from unspool.models.load.dialect import Dialect
from unspool.models.load.kept_weights import State, Weights
from unspool.models.load.safetensors_files import SafetensorsFiles, open_safetensors
from unspool.models.load.settings import Settings
from unspool.models.load.unsupported import UnsupportedModelError
from unspool.models.transformer_lm import TransformerConfig
from unspool.nn.positions import RotaryScaling
from unspool.text.json_file import read_object

_LLAMA = Dialect(
    {
        "embed": ("model.embed_tokens",),
        "norm": ("model.norm",),
        "head": ("lm_head",),
        "blocks.{}.attention_norm": ("model.layers.{}.input_layernorm",),
        "blocks.{}.attention.qkv": (
            "model.layers.{}.self_attn.q_proj",
            "model.layers.{}.self_attn.k_proj",
            "model.layers.{}.self_attn.v_proj",
        ),
        "blocks.{}.attention.out": ("model.layers.{}.self_attn.o_proj",),
        "blocks.{}.feed_forward_norm": ("model.layers.{}.post_attention_layernorm",),
        "blocks.{}.feed_forward.up": ("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
        "blocks.{}.feed_forward.down": ("model.layers.{}.mlp.down_proj",),
    },
    ignored=r".*rotary_emb\.inv_freq",
)
_GPT2 = Dialect(
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
    turned=True,
    ignored=r".*\.attn\.(bias|masked_bias)",
)
_GPT2_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def huggingface_config(folder: Path) -> TransformerConfig:
    """The shape of the model in the folder, as its config.json has it."""
    return _read(folder)[0]


def huggingface_weights(folder: Path, weights: Weights = "float32") -> tuple[TransformerConfig, State]:
    """The model in the folder: its shape, and its weights under our names."""
    config, dialect = _read(folder)
    source = open_safetensors(folder)
    dialect = _without_prefix(source, dialect)
    config, dialect = _tie(source, config, dialect)
    return config, assemble(source, config, dialect, weights)


def _read(folder: Path) -> tuple[TransformerConfig, Dialect]:
    path = folder / "config.json"
    settings = Settings(str(path), read_object(path))
    family = settings.word("model_type")
    if family not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(f"{path}: model_type {family!r:.40} is unknown; known are {known}")
    if settings.has("quantization_config"):
        raise UnsupportedModelError(
            f"{path}: the weights are quantised; fetch the model in float32, float16 or bfloat16"
        )
    with named(str(path)):
        return FAMILIES[family](settings)


def _gpt2(settings: Settings) -> tuple[TransformerConfig, Dialect]:
    settings.demand("scale_attn_weights", True)
    settings.demand("scale_attn_by_inverse_layer_idx", False)
    settings.demand("add_cross_attention", False)
    activation = settings.word("activation_function", "gelu_new")
    if activation not in _GPT2_ACTIVATIONS:
        known = ", ".join(_GPT2_ACTIVATIONS)
        raise UnsupportedModelError(
            f"{settings.source}: activation_function {activation!r} is unknown; known are {known}"
        )
    width, heads = settings.integer("n_embd"), settings.integer("n_head")
    config = TransformerConfig(
        vocab_size=settings.integer("vocab_size"),
        width=width,
        layers=settings.integer("n_layer"),
        heads=heads,
        kv_heads=heads,
        head_width=_head_width(settings, width, heads),
        inner_width=settings.integer("n_inner", 4 * width),
        context=settings.integer("n_positions", 1024),
        norm="layer",
        norm_eps=settings.number("layer_norm_epsilon", 1e-5),
        positions="learned",
        activation=_GPT2_ACTIVATIONS[activation],
        bias=True,
        tied=settings.flag("tie_word_embeddings", True),
    )
    return config, _GPT2


def _llama(settings: Settings) -> tuple[TransformerConfig, Dialect]:
    config = _llama_like(settings, context=settings.integer("max_position_embeddings", 2048))
    attention, feed_forward = settings.flag("attention_bias", False), settings.flag("mlp_bias", False)
    unbiased = {"attention.qkv", "attention.out"} if not attention else set()
    unbiased |= {"feed_forward.up", "feed_forward.down"} if not feed_forward else set()
    return replace(config, bias=attention or feed_forward), replace(_LLAMA, unbiased=frozenset(unbiased))


def _mistral(settings: Settings) -> tuple[TransformerConfig, Dialect]:
    context = settings.integer("max_position_embeddings", 131072)
    # Absent and null differ here: Mistral's own default is a window of 4096, null is none.
    if settings.values.get("sliding_window", 4096) is not None:
        context = min(context, settings.integer("sliding_window", 4096))
    return _llama_like(settings, context), _LLAMA


def _qwen2(settings: Settings) -> tuple[TransformerConfig, Dialect]:
    context = settings.integer("max_position_embeddings", 32768)
    if settings.flag("use_sliding_window", False):
        context = min(context, settings.integer("sliding_window", 4096))
    return replace(_llama_like(settings, context), qkv_bias=True), _LLAMA


FAMILIES: dict[str, Callable[[Settings], tuple[TransformerConfig, Dialect]]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
}


def _llama_like(settings: Settings, context: int) -> TransformerConfig:
    settings.demand("hidden_act", "silu")
    width, heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    has_width = settings.has("head_dim")
    base, scaling = _rotary(settings)
    return TransformerConfig(
        vocab_size=settings.integer("vocab_size"),
        width=width,
        layers=settings.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=settings.integer("num_key_value_heads", heads),
        head_width=settings.integer("head_dim") if has_width else _head_width(settings, width, heads),
        inner_width=settings.integer("intermediate_size"),
        context=context,
        norm_eps=settings.number("rms_norm_eps", 1e-6),
        rotary_base=base,
        rotary_scaling=scaling,
        tied=settings.flag("tie_word_embeddings", False),
    )


def _head_width(settings: Settings, width: int, heads: int) -> int:
    if width % heads:
        raise ValueError(f"{settings.source}: a width of {width} cannot be shared by {heads} heads")
    return width // heads


def _rotary(settings: Settings) -> tuple[float, RotaryScaling | None]:
    """The base and the stretching of the frequencies; transformers 5 keeps both in rope_parameters."""
    group = settings.group("rope_parameters" if settings.has("rope_parameters") else "rope_scaling")
    settings.demand("partial_rotary_factor", 1.0)
    group.demand("partial_rotary_factor", 1.0)
    base = group.number("rope_theta", settings.number("rope_theta", 10000.0))
    kind = group.word("rope_type", group.word("type", "default"))
    if kind == "default":
        return base, None
    if kind != "llama3":
        raise UnsupportedModelError(
            f"{settings.source}: rotary scaling {kind!r:.40} is unknown; known are default, llama3"
        )
    context = settings.integer("max_position_embeddings", 2048)
    return base, RotaryScaling(
        factor=group.number("factor"),
        low_freq_factor=group.number("low_freq_factor"),
        high_freq_factor=group.number("high_freq_factor"),
        original_context=group.integer("original_max_position_embeddings", context),
    )


def _without_prefix(source: SafetensorsFiles, dialect: Dialect) -> Dialect:
    """Bare models (GPT2Model, LlamaModel) are saved without the prefix that those with a head have."""
    prefix, _, bare = dialect.names["embed"][0].partition(".")
    if f"{bare}.weight" not in source.shapes:
        return dialect
    names = {
        ours: tuple(name.removeprefix(f"{prefix}.") for name in theirs)
        for ours, theirs in dialect.names.items()
    }
    return replace(dialect, names=names)


def _tie(
    source: SafetensorsFiles, config: TransformerConfig, dialect: Dialect
) -> tuple[TransformerConfig, Dialect]:
    """Follow the weights where they and the configuration disagree about tying, as transformers does."""
    head, embed = (f"{dialect.names[module][0]}.weight" for module in ("head", "embed"))
    if not config.tied or head not in source.shapes:
        return config, dialect
    if embed not in source.shapes:
        return config, replace(dialect, names={**dialect.names, "embed": dialect.names["head"]})
    if torch.equal(source.tensor(head), source.tensor(embed)):
        return config, replace(dialect, ignored=f"{dialect.ignored}|{head}")
    return replace(config, tied=False), dialect
