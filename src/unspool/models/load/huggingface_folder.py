"""A folder as Hugging Face's `save_pretrained` writes it: config.json and safetensors, whole or in shards.

It reads GPT-2, Llama and the families that are like it (`llama_families.py`), Gemma (`gemma_families.py`),
and encoder–decoders (`seq2seq_folder.py`), in any floating-point type.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from unspool.models.load.assembly import assemble, named
from unspool.models.load.dialect import Dialect
from unspool.models.load.gemma_families import FAMILIES as GEMMA_FAMILIES
from unspool.models.load.kept_weights import State, Weights
from unspool.models.load.llama_families import FAMILIES as LLAMA_FAMILIES, Family
from unspool.models.load.safetensors_files import SafetensorsFiles, open_safetensors
from unspool.models.load.seq2seq_folder import FAMILIES as SEQ2SEQ_FAMILIES, seq2seq_config, seq2seq_weights
from unspool.models.load.settings import Settings
from unspool.models.load.unsupported import UnsupportedModelError
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.text.json_file import read_object

AnyConfig = TransformerConfig | TransformerSeq2SeqConfig
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


def huggingface_config(folder: Path) -> AnyConfig:
    """The shape of the model in the folder, as its config.json has it."""
    return _read(folder)[0]


def huggingface_weights(folder: Path, weights: Weights = "float32") -> tuple[AnyConfig, State]:
    """The model in the folder: its shape, and its weights under our names."""
    config, dialect = _read(folder)
    source = open_safetensors(folder)
    dialect = _without_prefix(source, dialect)
    config, dialect = _tie(source, config, dialect)
    if isinstance(config, TransformerSeq2SeqConfig):
        return seq2seq_weights(source, config, dialect, weights)
    return config, assemble(source, config, dialect, weights)


def _read(folder: Path) -> tuple[AnyConfig, Dialect]:
    path = folder / "config.json"
    settings = Settings(str(path), read_object(path))
    family = settings.word("model_type")
    if family not in FAMILIES and family not in SEQ2SEQ_FAMILIES:
        known = ", ".join(sorted([*FAMILIES, *SEQ2SEQ_FAMILIES]))
        raise UnsupportedModelError(f"{path}: model_type {family!r:.40} is unknown; known are {known}")
    if settings.has("quantization_config"):
        raise UnsupportedModelError(
            f"{path}: the weights are quantised; fetch the model in float32, float16 or bfloat16"
        )
    if family in SEQ2SEQ_FAMILIES:
        return seq2seq_config(folder, settings)
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


FAMILIES: dict[str, Family] = {"gpt2": _gpt2, **LLAMA_FAMILIES, **GEMMA_FAMILIES}
"""Their `model_type` → our shape and their names."""


def _head_width(settings: Settings, width: int, heads: int) -> int:
    if width % heads:
        raise ValueError(f"{settings.source}: a width of {width} cannot be shared by {heads} heads")
    return width // heads


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


def _tie(source: SafetensorsFiles, config: AnyConfig, dialect: Dialect) -> tuple[AnyConfig, Dialect]:
    """Follow the weights where they and the configuration disagree about tying, as transformers does."""
    head, embed = (f"{dialect.names[module][0]}.weight" for module in ("head", "embed"))
    if not config.tied or head not in source.shapes:
        return config, dialect
    if embed not in source.shapes:
        return config, replace(dialect, names={**dialect.names, "embed": dialect.names["head"]})
    if torch.equal(source.tensor(head), source.tensor(embed)):
        return config, replace(dialect, ignored=f"{dialect.ignored}|{head}")
    return replace(config, tied=False), dialect
