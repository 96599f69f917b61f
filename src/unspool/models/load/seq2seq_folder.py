"""A Hugging Face folder of an encoder–decoder: BART and Marian (`bart_families.py`), T5 (`t5_family.py`).

One vocabulary and one embedding serve both sides. A file may hold the embedding under the names of several of
its users: copies are skipped. Where it holds something else there, the model is not ours.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import torch

from unspool.heads import SoftmaxHeadConfig
from unspool.models.load.assembly import fill, named
from unspool.models.load.bart_families import FAMILIES as BART_FAMILIES, Seq2SeqFamily
from unspool.models.load.dialect import Dialect
from unspool.models.load.kept_weights import State, Weights
from unspool.models.load.safetensors_files import SafetensorsFiles
from unspool.models.load.seq2seq_plan import seq2seq_plan
from unspool.models.load.settings import Settings
from unspool.models.load.t5_family import t5
from unspool.models.load.unsupported import UnsupportedModelError
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.text.json_file import read_object

FAMILIES: dict[str, Seq2SeqFamily] = {**BART_FAMILIES, "t5": t5}
"""Their `model_type` → our shape and their names."""
ENDS = ("bos_token_id", "decoder_start_token_id", "eos_token_id")
"""What generation_config.json says, config.json need not."""
COPIES = r"(.*\.)?(encoder|decoder)\.embed_tokens\.weight"


def seq2seq_config(folder: Path, settings: Settings) -> tuple[TransformerSeq2SeqConfig, Dialect]:
    """The shape of the model in the folder, and their names for its parts."""
    path = folder / "generation_config.json"
    stated = read_object(path) if path.is_file() else {}
    ends = {name: stated[name] for name in ENDS if stated.get(name) is not None}
    settings = replace(settings, values={**settings.values, **ends})
    with named(settings.source):
        return FAMILIES[settings.word("model_type")](settings)


def seq2seq_weights(
    source: SafetensorsFiles, config: TransformerSeq2SeqConfig, dialect: Dialect, weights: Weights
) -> tuple[TransformerSeq2SeqConfig, State]:
    """The model's weights under our names, and its shape as they have it."""
    config, dialect = _follow(source, config, _without_copies(source, dialect))
    return config, fill(source, seq2seq_plan(config, dialect), dialect.ignored, weights)


def _without_copies(source: SafetensorsFiles, dialect: Dialect) -> Dialect:
    """The embedding is read under one name: that of both sides' own, or else of one of them."""
    shared = f"{dialect.names['embed'][0]}.weight"
    copies = [name for name in source.shapes if re.fullmatch(COPIES, name)]
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


def _follow(
    source: SafetensorsFiles, config: TransformerSeq2SeqConfig, dialect: Dialect
) -> tuple[TransformerSeq2SeqConfig, Dialect]:
    """What a file has need not be in the settings: a bias of the logits, waves that were written down."""
    bias = dialect.names.get("head.bias", ("",))[0] in source.shapes
    config = replace(config, head=SoftmaxHeadConfig(bias=True) if bias else None)
    written = f"{dialect.names.get('positions', ('',))[0]}.weight" in source.shapes
    if config.positions == "sinusoidal_halves" and written:
        config = replace(config, positions="learned")
    return config, dialect
