"""Read a Hugging Face folder (`save_pretrained`): config.json and safetensors, in one file or in shards.

Supports the families of `causal_families` and `seq2seq_families`, in any floating-point dtype. Code in the
folder (`auto_map`) is never run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import torch

from unspool.heads import SoftmaxHeadConfig
from unspool.interfaces import TokenizerLike
from unspool.io import read_json_object
from unspool.models.loading.assembly import build_model, errors_with_label
from unspool.models.loading.causal_families import CAUSAL_FAMILIES
from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError
from unspool.models.loading.safetensors_files import SafetensorsFiles, open_safetensors
from unspool.models.loading.seq2seq_families import SEQ2SEQ_FAMILIES
from unspool.models.loading.weight_layout import WeightLayout
from unspool.models.loading.weights import WeightFormat
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq, TransformerSeq2SeqConfig

AnyConfig = TransformerConfig | TransformerSeq2SeqConfig
SPECIAL_TOKEN_KEYS = ("bos_token_id", "decoder_start_token_id", "eos_token_id")
"""Keys of encoder–decoders for which generation_config.json overrides config.json."""
EMBEDDING_COPIES = r"(.*\.)?(encoder|decoder)\.embed_tokens\.weight"


def load_huggingface(
    folder: Path, tokenizer: TokenizerLike | None = None, weights: WeightFormat = "float32"
) -> TransformerLM | TransformerSeq2Seq:
    config, layout = read_huggingface_config(folder)
    source = open_safetensors(folder)
    layout = _without_prefix(source, layout)
    config, layout = _match_tying(source, config, layout)
    if isinstance(config, TransformerSeq2SeqConfig):
        layout = _ignore_embedding_copies(source, layout)
        config = _match_file(source, config, layout)
    return build_model(config, source, layout, tokenizer, weights)


def read_huggingface_config(folder: Path) -> tuple[AnyConfig, WeightLayout]:
    """The model configuration and weight layout of the folder's config.json."""
    path = folder / "config.json"
    settings = ConfigReader(str(path), read_json_object(path))
    family = settings.string("model_type")
    if family not in CAUSAL_FAMILIES and family not in SEQ2SEQ_FAMILIES:
        known = ", ".join(sorted([*CAUSAL_FAMILIES, *SEQ2SEQ_FAMILIES]))
        raise UnsupportedModelError(f"{path}: model_type {family!r:.40} is unknown; known are {known}")
    if settings.has("quantization_config"):
        raise UnsupportedModelError(
            f"{path}: the weights are quantised; fetch the model in float32, float16 or bfloat16"
        )
    with errors_with_label(str(path)):
        if family in CAUSAL_FAMILIES:
            return CAUSAL_FAMILIES[family](settings)
        generation = folder / "generation_config.json"
        stated = read_json_object(generation) if generation.is_file() else {}
        tokens = {name: stated[name] for name in SPECIAL_TOKEN_KEYS if stated.get(name) is not None}
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
