"""A folder as Hugging Face's `save_pretrained` writes it: config.json and safetensors, whole or in shards.

It reads GPT-2, Llama and the families that are like it (`llama_families.py`), Gemma (`gemma_families.py`),
and encoder–decoders (`seq2seq_folder.py`), in any floating-point type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from unspool.heads import SoftmaxHeadConfig
from unspool.models.loading.assembly import errors_with_label, read_tensors, read_weights
from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.models.loading.llama_families import GEMMA_FAMILIES, LLAMA_FAMILIES, Family
from unspool.models.loading.safetensors_files import SafetensorsFiles, open_safetensors
from unspool.models.loading.seq2seq_families import BART_FAMILIES, Seq2SeqFamily, read_t5
from unspool.models.loading.weight_layout import (
    ModuleShape,
    SourcePart,
    TargetTensor,
    WeightLayout,
    block_modules,
    module_tensors,
)
from unspool.models.loading.weights import StateDict, WeightFormat
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.tokenization.tokenizer import read_json_object


def seq2seq_plan(config: TransformerSeq2SeqConfig, dialect: WeightLayout) -> Iterator[TargetTensor]:
    """Our tensors one by one, each with its pieces; a layer that is missing is found as soon as it is due.

    What the tensors of a Transformer encoder–decoder are made of, under the names that a family gives them.

        ours                            BART
        encoder.blocks.0.attention.qkv  model.encoder.layers.0.self_attn.{q,k,v}_proj, one above another
        blocks.0.cross_attention.kv     model.decoder.layers.0.encoder_attn.{k,v}_proj

    A dialect (`dialect.py`) names the modules of both sides, "{}" stands for the layer.
    """
    for module, part in _outer_modules(config).items():
        adjusted = dialect.adjusted.get(module, ())
        yield from module_tensors(module, dialect.names[module], part, dialect, adjusted, biased=True)
    if isinstance(config.head, SoftmaxHeadConfig) and config.head.bias:
        words = (config.vocab_size,)
        (bias,) = dialect.names["head.bias"]
        yield TargetTensor("head.bias", words, (SourcePart(bias, words, in_row=True),))
    inside = block_modules(config)
    yield from _blocks("encoder.blocks.{}.", config.encoder_layers, inside, dialect)
    yield from _blocks(
        "blocks.{}.", config.decoder_layers, inside | _cross_attention_modules(config), dialect
    )


def _blocks(
    side: str, layers: int, inside: dict[str, ModuleShape], dialect: WeightLayout
) -> Iterator[TargetTensor]:
    for layer in range(layers):
        for module, part in inside.items():
            template = side + module
            sources = tuple(source.format(layer) for source in dialect.names[template])
            adjusted = dialect.adjusted.get(template, ())
            yield from module_tensors(template.format(layer), sources, part, dialect, adjusted, biased=True)


def _outer_modules(c: TransformerSeq2SeqConfig) -> dict[str, ModuleShape]:
    words = ModuleShape((c.vocab_size,), c.width, matrix=True)
    norm = ModuleShape((c.width,), None, c.norm == "layer")
    parts = {"embed": words}
    for side in ("encoder.", ""):
        if c.positions == "learned" and c.context is not None:
            parts[f"{side}positions"] = ModuleShape((c.context,), c.width)
        if c.positions == "relative":
            parts[f"{side}relative"] = ModuleShape((c.relative_buckets,), c.heads)
        if c.embed_norm:
            parts[f"{side}embed_norm"] = norm
        if c.norm_place != "post":
            parts[f"{side}norm"] = norm
    if not c.tied:
        parts["head"] = words
    return parts


def _cross_attention_modules(c: TransformerSeq2SeqConfig) -> dict[str, ModuleShape]:
    """What a block of the decoder has for its source."""
    queries, keys, biased = c.heads * c.each_width, c.key_value_heads * c.each_width, c.bias or c.qkv_bias
    return {
        "cross_attention_norm": ModuleShape((c.width,), None, c.norm == "layer"),
        "cross_attention.query": ModuleShape((queries,), c.width, biased, True),
        "cross_attention.kv": ModuleShape((keys, keys), c.width, biased, True),
        "cross_attention.out": ModuleShape((c.width,), queries, c.bias, True),
    }


# A Hugging Face folder of an encoder–decoder: BART and Marian (`bart_families.py`), T5 (`t5_family.py`).
#
# One vocabulary and one embedding serve both sides. A file may hold the embedding under the names of several
# of its users: copies are skipped. Where it holds something else there, the model is not ours.


SEQ2SEQ_FAMILIES: dict[str, Seq2SeqFamily] = {**BART_FAMILIES, "t5": read_t5}
"""Their `model_type` → our shape and their names."""
SPECIAL_TOKEN_KEYS = ("bos_token_id", "decoder_start_token_id", "eos_token_id")
"""What generation_config.json says, config.json need not."""
EMBEDDING_COPIES = r"(.*\.)?(encoder|decoder)\.embed_tokens\.weight"


def seq2seq_config(folder: Path, settings: ConfigReader) -> tuple[TransformerSeq2SeqConfig, WeightLayout]:
    """The shape of the model in the folder, and their names for its parts."""
    path = folder / "generation_config.json"
    stated = read_json_object(path) if path.is_file() else {}
    ends = {name: stated[name] for name in SPECIAL_TOKEN_KEYS if stated.get(name) is not None}
    settings = replace(settings, values={**settings.values, **ends})
    with errors_with_label(settings.source):
        return SEQ2SEQ_FAMILIES[settings.word("model_type")](settings)


def seq2seq_weights(
    source: SafetensorsFiles, config: TransformerSeq2SeqConfig, dialect: WeightLayout, weights: WeightFormat
) -> tuple[TransformerSeq2SeqConfig, StateDict]:
    """The model's weights under our names, and its shape as they have it."""
    config, dialect = _match_file(source, config, _without_copies(source, dialect))
    return config, read_tensors(source, seq2seq_plan(config, dialect), dialect.ignored, weights)


def _without_copies(source: SafetensorsFiles, dialect: WeightLayout) -> WeightLayout:
    """The embedding is read under one name: that of both sides' own, or else of one of them."""
    shared = f"{dialect.names['embed'][0]}.weight"
    copies = [name for name in source.shapes if re.fullmatch(EMBEDDING_COPIES, name)]
    if shared not in source.shapes and copies:
        shared = copies[0]
        names = {**dialect.names, "embed": (shared.removesuffix(".weight"),)}
        dialect = replace(dialect, names=names)
    for name in copies:
        if not torch.equal(source.tensor(name), source.tensor(shared)):
            raise UnsupportedModelError(
                f"{source.label}: tensor {name!r} is not {shared!r}; expected one embedding for both sides, "
                "the only kind that is supported"
            )
    ignored = "|".join([dialect.ignored, *(re.escape(name) for name in copies if name != shared)])
    return replace(dialect, ignored=ignored)


def _match_file(
    source: SafetensorsFiles, config: TransformerSeq2SeqConfig, dialect: WeightLayout
) -> tuple[TransformerSeq2SeqConfig, WeightLayout]:
    """What a file has need not be in the settings: a bias of the logits, waves that were written down."""
    bias = dialect.names.get("head.bias", ("",))[0] in source.shapes
    config = replace(config, head=SoftmaxHeadConfig(bias=True) if bias else None)
    written = f"{dialect.names.get('positions', ('',))[0]}.weight" in source.shapes
    if config.positions == "sinusoidal_halves" and written:
        config = replace(config, positions="learned")
    return config, dialect


AnyConfig = TransformerConfig | TransformerSeq2SeqConfig
_GPT2 = WeightLayout(
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
    return _read_config(folder)[0]


def huggingface_weights(folder: Path, weights: WeightFormat = "float32") -> tuple[AnyConfig, StateDict]:
    """The model in the folder: its shape, and its weights under our names."""
    config, dialect = _read_config(folder)
    source = open_safetensors(folder)
    dialect = _without_prefix(source, dialect)
    config, dialect = _match_tying(source, config, dialect)
    if isinstance(config, TransformerSeq2SeqConfig):
        return seq2seq_weights(source, config, dialect, weights)
    return config, read_weights(source, config, dialect, weights)


def _read_config(folder: Path) -> tuple[AnyConfig, WeightLayout]:
    path = folder / "config.json"
    settings = ConfigReader(str(path), read_json_object(path))
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
    with errors_with_label(str(path)):
        return FAMILIES[family](settings)


def _gpt2(settings: ConfigReader) -> tuple[TransformerConfig, WeightLayout]:
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


def _head_width(settings: ConfigReader, width: int, heads: int) -> int:
    if width % heads:
        raise ValueError(f"{settings.source}: a width of {width} cannot be shared by {heads} heads")
    return width // heads


def _without_prefix(source: SafetensorsFiles, dialect: WeightLayout) -> WeightLayout:
    """Bare models (GPT2Model, LlamaModel) are saved without the prefix that those with a head have."""
    prefix, _, bare = dialect.names["embed"][0].partition(".")
    if f"{bare}.weight" not in source.shapes:
        return dialect
    names = {
        ours: tuple(name.removeprefix(f"{prefix}.") for name in theirs)
        for ours, theirs in dialect.names.items()
    }
    return replace(dialect, names=names)


def _match_tying(
    source: SafetensorsFiles, config: AnyConfig, dialect: WeightLayout
) -> tuple[AnyConfig, WeightLayout]:
    """Follow the weights where they and the configuration disagree about tying, as transformers does."""
    head, embed = (f"{dialect.names[module][0]}.weight" for module in ("head", "embed"))
    if not config.tied or head not in source.shapes:
        return config, dialect
    if embed not in source.shapes:
        return config, replace(dialect, names={**dialect.names, "embed": dialect.names["head"]})
    if torch.equal(source.tensor(head), source.tensor(embed)):
        return config, replace(dialect, ignored=f"{dialect.ignored}|{head}")
    return replace(config, tied=False), dialect
