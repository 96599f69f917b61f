"""Read a Hugging Face folder (`save_pretrained`): config.json and safetensors, in one file or in shards.

Supports GPT-2, Llama and similar families, Gemma (`llama_families`), and the encoder–decoders BART, Marian
and T5 (`seq2seq_families`), in any floating-point dtype. Code in the folder (`auto_map`) is never run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import torch

from unspool.heads import SoftmaxHeadConfig
from unspool.io import read_json_object
from unspool.models.loading.assembly import errors_with_label, read_tensors
from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.models.loading.llama_families import (
    GEMMA_FAMILIES,
    LLAMA_FAMILIES,
    Family,
    divide_width,
)
from unspool.models.loading.safetensors_files import SafetensorsFiles, open_safetensors
from unspool.models.loading.seq2seq_families import SEQ2SEQ_FAMILIES
from unspool.models.loading.weight_layout import WeightLayout, plan_seq2seq_tensors, plan_tensors
from unspool.models.loading.weights import StateDict, WeightFormat
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

AnyConfig = TransformerConfig | TransformerSeq2SeqConfig
SPECIAL_TOKEN_KEYS = ("bos_token_id", "decoder_start_token_id", "eos_token_id")
"""Keys of encoder–decoders for which generation_config.json overrides config.json."""
EMBEDDING_COPIES = r"(.*\.)?(encoder|decoder)\.embed_tokens\.weight"
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
_GPT2_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def huggingface_config(folder: Path) -> AnyConfig:
    """The model configuration of the folder's config.json."""
    return _read_config(folder)[0]


def huggingface_weights(folder: Path, weights: WeightFormat = "float32") -> tuple[AnyConfig, StateDict]:
    """The configuration and state dict of the model in a folder."""
    config, layout = _read_config(folder)
    source = open_safetensors(folder)
    layout = _without_prefix(source, layout)
    config, layout = _match_tying(source, config, layout)
    if isinstance(config, TransformerSeq2SeqConfig):
        layout = _ignore_embedding_copies(source, layout)
        config = _match_file(source, config, layout)
        return config, read_tensors(source, plan_seq2seq_tensors(config, layout), layout.ignored, weights)
    return config, read_tensors(source, plan_tensors(config, layout), layout.ignored, weights)


def _read_config(folder: Path) -> tuple[AnyConfig, WeightLayout]:
    path = folder / "config.json"
    settings = ConfigReader(str(path), read_json_object(path))
    family = settings.string("model_type")
    if family not in FAMILIES and family not in SEQ2SEQ_FAMILIES:
        known = ", ".join(sorted([*FAMILIES, *SEQ2SEQ_FAMILIES]))
        raise UnsupportedModelError(f"{path}: model_type {family!r:.40} is unknown; known are {known}")
    if settings.has("quantization_config"):
        raise UnsupportedModelError(
            f"{path}: the weights are quantised; fetch the model in float32, float16 or bfloat16"
        )
    if family in FAMILIES:
        with errors_with_label(str(path)):
            return FAMILIES[family](settings)
    generation = folder / "generation_config.json"
    stated = read_json_object(generation) if generation.is_file() else {}
    tokens = {name: stated[name] for name in SPECIAL_TOKEN_KEYS if stated.get(name) is not None}
    with errors_with_label(str(path)):
        return SEQ2SEQ_FAMILIES[family](replace(settings, values={**settings.values, **tokens}))


def _without_prefix(source: SafetensorsFiles, layout: WeightLayout) -> WeightLayout:
    """Bare models (GPT2Model, LlamaModel) are saved without the prefix of models with a head."""
    prefix, _, bare = layout.names["embed"][0].partition(".")
    if f"{bare}.weight" not in source.shapes:
        return layout
    names = {
        ours: tuple(name.removeprefix(f"{prefix}.") for name in theirs)
        for ours, theirs in layout.names.items()
    }
    return replace(layout, names=names)


def _match_tying(
    source: SafetensorsFiles, config: AnyConfig, layout: WeightLayout
) -> tuple[AnyConfig, WeightLayout]:
    """If weights and configuration disagree about tying, the weights decide, as in transformers."""
    head, embed = (f"{layout.names[module][0]}.weight" for module in ("head", "embed"))
    if not config.tied or head not in source.shapes:
        return config, layout
    if embed not in source.shapes:
        return config, replace(layout, names={**layout.names, "embed": layout.names["head"]})
    if torch.equal(source.tensor(head), source.tensor(embed)):
        return config, replace(layout, ignored=f"{layout.ignored}|{head}")
    return replace(config, tied=False), layout


def _ignore_embedding_copies(source: SafetensorsFiles, layout: WeightLayout) -> WeightLayout:
    """Read the shared embedding of an encoder–decoder once; a file may store copies for each side."""
    shared = f"{layout.names['embed'][0]}.weight"
    copies = [name for name in source.shapes if re.fullmatch(EMBEDDING_COPIES, name)]
    if shared not in source.shapes and copies:
        shared = copies[0]
        names = {**layout.names, "embed": (shared.removesuffix(".weight"),)}
        layout = replace(layout, names=names)
    for name in copies:
        if not torch.equal(source.tensor(name), source.tensor(shared)):
            raise UnsupportedModelError(
                f"{source.label}: tensor {name!r} differs from {shared!r}; only one embedding for both sides "
                "is supported"
            )
    ignored = "|".join([layout.ignored, *(re.escape(name) for name in copies if name != shared)])
    return replace(layout, ignored=ignored)


def _match_file(
    source: SafetensorsFiles, config: TransformerSeq2SeqConfig, layout: WeightLayout
) -> TransformerSeq2SeqConfig:
    """Use a logits bias and sinusoidal positions if the file stores them; config.json does not say so."""
    bias = layout.names.get("head.bias", ("",))[0] in source.shapes
    config = replace(config, head=SoftmaxHeadConfig(bias=True) if bias else None)
    stored = f"{layout.names.get('positions', ('',))[0]}.weight" in source.shapes
    if config.positions == "sinusoidal_halves" and stored:
        config = replace(config, positions="learned")
    return config


def _gpt2(settings: ConfigReader) -> tuple[TransformerConfig, WeightLayout]:
    settings.require("scale_attn_weights", True)
    settings.require("scale_attn_by_inverse_layer_idx", False)
    settings.require("add_cross_attention", False)
    activation = settings.string("activation_function", "gelu_new")
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
        head_width=divide_width(settings, width, heads),
        inner_width=settings.integer("n_inner", 4 * width),
        context=settings.integer("n_positions", 1024),
        norm="layer",
        norm_eps=settings.number("layer_norm_epsilon", 1e-5),
        positions="learned",
        activation=_GPT2_ACTIVATIONS[activation],
        bias=True,
        tied=settings.flag("tie_word_embeddings", True),
    )
    return config, GPT2


FAMILIES: dict[str, Family] = {"gpt2": _gpt2, **LLAMA_FAMILIES, **GEMMA_FAMILIES}
"""`model_type` → reader of its configuration and weight layout."""
