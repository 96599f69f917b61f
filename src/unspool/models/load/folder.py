"""Our own run folder: config.json, model.safetensors under our names, and the tokenizer's files.

    {"format": "unspool", "version": 1, "config": {"kind": "transformer_lm", …}}

It is written so that it appears whole or not at all, and read by mapping: no float32 matrix of a large model
is copied. Those of a small one are, into large pages, from which a step reads a seventh faster. The weights
carry a checksum, which is compared when they are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from unspool.config import unknown
from unspool.files.atomic import new_folder, present
from unspool.models.config_tables import configured, described
from unspool.models.load.assembly import check_shapes, furnish, outline
from unspool.models.load.dialect import Target, TensorPart
from unspool.models.load.kept_weights import KEPT, Weights
from unspool.models.load.safetensors_files import WEIGHTS, open_safetensors, write_safetensors
from unspool.models.load.stored_parts import storable
from unspool.models.load.tokenizer import save_text, text_of_run
from unspool.nn.stored.weight_memory import WEIGHT_MEMORY
from unspool.text.json_file import read_object

if TYPE_CHECKING:
    from unspool.protocols import Text

CONFIG = "config.json"
FORMAT, VERSION = "unspool", 1
SMALL = 2**26
"""Weights of a model that is copied when it is loaded, at most: a quarter of a gigabyte."""


class Saveable(Protocol):
    """A model that knows its shape: one of those in MODELS."""

    config: Any
    text: Text | None

    def state_dict(self) -> dict[str, Tensor]:
        """Its weights by name."""
        ...


def save_folder(model: Saveable, path: Path, *, replace: bool = False) -> None:
    """Write the model to a folder, which appears whole or not at all.

    An existing folder is an error; with `replace` it gives way at the last moment, and a reader finds the old
    model or the new one at any time.
    """
    with new_folder(path, replace=replace) as folder:
        write_files(model, folder)


def write_files(model: Saveable, folder: Path) -> None:
    """The files of a run folder, into a folder that nobody reads yet."""
    said = {"format": FORMAT, "version": VERSION, "config": described(model.config)}
    (folder / CONFIG).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    write_safetensors(_apart(model.state_dict()), folder / WEIGHTS)
    save_text(model.text, folder)


def _apart(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
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
    config = present(path) / CONFIG
    return config.is_file() and read_object(config).get("format") == FORMAT


def load_folder(path: Path, weights: Weights = "float32") -> Any:
    """The model in a run folder.

    Float32 weights are private maps of the file, or copies: fast, and safe to train on.
    """
    folder = present(path)
    config, files = run_config(folder), open_safetensors(folder)
    model = outline(config, text_of_run(folder), str(folder), len(files.files))
    check_shapes(model, files.shapes, str(folder))  # before a tensor is read
    matrices = storable(model)
    state = {
        name: KEPT[weights](files, Target(name, shape, (TensorPart(name, shape),), name in matrices))
        for name, shape in files.shapes.items()
    }
    if weights == "float32" and sum(map(math.prod, files.shapes.values())) <= SMALL:
        state = {name: WEIGHT_MEMORY.copy(kept) for name, kept in state.items() if isinstance(kept, Tensor)}
    return furnish(model, state, str(folder))


def run_config(folder: Path) -> Any:
    """The shape of the model in a run folder."""
    path = folder / CONFIG
    said = dict(read_object(path))
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
