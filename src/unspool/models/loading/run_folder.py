"""Our own run folder: config.json, model.safetensors under our names, and the tokenizer's files.

    {"format": "unspool", "version": 1, "config": {"kind": "transformer_lm", …}}

It is written so that it appears whole or not at all, and read by mapping: no float32 matrix of a large model
is copied. Those of a small one are, into large pages, from which a step reads a seventh faster. The weights
carry a checksum, which is compared when they are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from safetensors import SafetensorError
from torch import Tensor

from unspool.config import unknown
from unspool.engine.stored_weights import WEIGHT_MEMORY
from unspool.engine.weight_formats import all_finite
from unspool.io import complete_folder, new_folder
from unspool.models import MODELS, configured, described
from unspool.models.loading.assembly import assign_weights, build_on_meta, check_shapes
from unspool.models.loading.huggingface_export import write_huggingface
from unspool.models.loading.safetensors_files import WEIGHTS, open_safetensors, write_safetensors
from unspool.models.loading.tokenizer import load_run_tokenizer, save_tokenizer
from unspool.models.loading.weight_layout import SourcePart, TargetTensor
from unspool.models.loading.weights import READERS, WeightFormat, storable_weights
from unspool.models.lora import without_adapters
from unspool.tokenization.tokenizer import read_json_object

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike

CONFIG = "config.json"
FORMAT, VERSION = "unspool", 1
MAX_COPIED_WEIGHTS = 2**26
"""Weights of a model that is copied when it is loaded, at most: a quarter of a gigabyte."""


class Saveable(Protocol):
    """A model that knows its shape: one of those in MODELS."""

    config: Any
    tokenizer: TokenizerLike | None

    def state_dict(self) -> dict[str, Tensor]:
        """Its weights by name."""
        ...


def save_folder(model: Saveable, path: Path, *, replace: bool = False) -> None:
    """Write the model to a folder, which appears whole or not at all.

    An existing folder is an error; with `replace` it gives way at the last moment, and a reader finds the old
    model or the new one at any time.
    """
    with new_folder(path, replace=replace) as folder:
        write_run_folder(model, folder)


def write_run_folder(model: Saveable, folder: Path) -> None:
    """The files of a run folder, into a folder that nobody reads yet."""
    said = {"format": FORMAT, "version": VERSION, "config": described(model.config)}
    (folder / CONFIG).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    write_safetensors(_unshared(model.state_dict()), folder / WEIGHTS)
    save_tokenizer(model.tokenizer, folder)


def _unshared(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor in main memory, with memory of its own: a file cannot hold one number under two names."""
    found: dict[str, Tensor] = {}
    places = set[int]()
    for name, tensor in state.items():
        kept = tensor.detach().cpu().contiguous()
        place = kept.untyped_storage().data_ptr()
        found[name] = kept.clone() if place in places else kept
        places.add(place)
    return found


def is_run_folder(path: Path) -> bool:
    """Whether there is a folder in our own format, complete or set aside by a killed replacement."""
    config = complete_folder(path) / CONFIG
    return config.is_file() and read_json_object(config).get("format") == FORMAT


def load_folder(path: Path, weights: WeightFormat = "float32") -> Any:
    """The model in a run folder.

    Float32 weights are private maps of the file, or copies: fast, and safe to train on.
    """
    folder = complete_folder(path)
    config, files = run_config(folder), open_safetensors(folder)
    model = build_on_meta(config, load_run_tokenizer(folder), str(folder), len(files.files))
    check_shapes(model, files.shapes, str(folder))  # before a tensor is read
    matrices = storable_weights(model)
    state = {
        name: READERS[weights](files, TargetTensor(name, shape, (SourcePart(name, shape),), name in matrices))
        for name, shape in files.shapes.items()
    }
    if weights == "float32" and sum(map(math.prod, files.shapes.values())) <= MAX_COPIED_WEIGHTS:
        state = {name: WEIGHT_MEMORY.copy(kept) for name, kept in state.items() if isinstance(kept, Tensor)}
    return assign_weights(model, state, str(folder))


def run_config(folder: Path) -> Any:
    """The shape of the model in a run folder."""
    path = folder / CONFIG
    said = dict(read_json_object(path))
    found = f"{said.pop('format', None)!r} {said.pop('version', None)!r}"
    if found != f"{FORMAT!r} {VERSION}":
        raise ValueError(f"{path}: format {found} cannot be read; expected {FORMAT!r} {VERSION}")
    oldest = said.pop("model", "transformer_lm")  # before there were other kinds it stood here
    config = said.pop("config", None)
    if said:
        raise ValueError(f"{path}: {unknown(next(iter(said)), ['format', 'version', 'config'], 'key')}")
    if not isinstance(config, dict):
        raise ValueError(f"{path}: config must be a table, found {config!r:.40}")
    try:
        return configured({"kind": oldest, **config}, "config")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save(model: Saveable, folder: str | PathLike[str], *, format: str = "unspool") -> None:  # noqa: A002
    """Write a model and its tokenizer to a folder, from which `load` gives the same log-probabilities.

    `format` "huggingface" writes a language model of the Llama or GPT-2 family, or an encoder–decoder of
    BART's, Marian's or T5's, as a folder for `from_pretrained` of `AutoModelForCausalLM` or
    `AutoModelForSeq2SeqLM`, and of `AutoTokenizer`; `load` reads that, too.

    The folder appears whole or not at all. One that is there must be empty, or hold nothing but a model that
    was saved before, which gives way. Weights are kept in the model's own precision: what was made in
    bfloat16 is loaded with dtype="bfloat16".

    Any model of ours into a folder that `load` reads.

        us.save(model, "folder");   us.load("folder")

    The folder has the format of a run's (`folder.py`), which holds every kind of model with its head and its
    tokenizer, or that of Hugging Face (`huggingface_saving.py`). Adapters are merged into their matrices.
    """
    if not isinstance(folder, str | PathLike) or not fspath(folder):
        raise TypeError(f"a model is saved to a folder by its name or path, not to {folder!r:.80}")
    if not isinstance(format, str) or format not in FORMATS:
        raise ValueError(f"format={format!r:.40} is unknown: choose from {', '.join(map(repr, FORMATS))}")
    _check_model(model)
    path = Path(fspath(folder)).expanduser()
    _check_folder(path)
    try:
        with new_folder(path, replace=True) as fresh:
            FORMATS[format](model, fresh)
    except SafetensorError as error:
        raise OSError(f"{path}: the weights cannot be written: {error}") from error


def _write_ours(model: Any, folder: Path) -> None:
    write_run_folder(without_adapters(model), folder)


FORMATS: dict[str, Callable[[Any, Path], None]] = {
    "huggingface": write_huggingface,
    "unspool": _write_ours,
}


def _check_model(model: Any) -> None:
    if type(getattr(model, "config", None)) not in MODELS.values() or not hasattr(model, "state_dict"):
        kinds = ", ".join(config.__name__.removesuffix("Config") for config in MODELS.values())
        raise TypeError(
            f"the {type(model).__name__} given cannot be saved: it is no model of weights, as us.load and "
            f"us.train give them ({kinds}). Save the models that it is made of, each to its own folder"
        )
    for name, tensor in model.state_dict().items():
        if tensor.is_meta:
            raise ValueError(f"tensor {name!r} is on the device 'meta', where there are no numbers to save")
        if not all_finite(tensor.detach()):
            raise ValueError(
                f"tensor {name!r} holds NaN or infinity: nothing could be said with such a model"
            )


def _check_folder(path: Path) -> None:
    """Before anything is written; what else is in a folder of ours is looked at when it gives way."""
    if path.is_dir() and any(path.iterdir()) and not is_run_folder(path):
        first = min(entry.name for entry in path.iterdir())
        raise FileExistsError(
            f"{path} holds {first} and is no model that was saved here; choose another name, or remove it"
        )
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file, not a folder; choose another name")
