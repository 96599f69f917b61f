"""Our own run folder: config.json, model.safetensors under our names, and the tokenizer's files.

    {"format": "unspool", "version": 1, "model": "transformer_lm", "config": {…}}

It is written so that it appears whole or not at all, and read by mapping: no tensor is copied.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors.torch import save_file

from unspool.models.load.assembly import build
from unspool.models.load.atomic import new_folder, present
from unspool.models.load.safetensors_files import WEIGHTS, open_safetensors
from unspool.models.load.tokenizer import save_text, text_of_run
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.nn.positions import RotaryScaling
from unspool.text.json_file import read_object

CONFIG = "config.json"
FORMAT, VERSION = "unspool", 1
MODELS = {"transformer_lm": TransformerConfig}

# What JSON may hold for a field of each type; true and false are no numbers here.
_JSON = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
    RotaryScaling | None: (dict, type(None)),
}
_KIND = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def save_folder(model: TransformerLM, path: Path, *, replace: bool = False) -> None:
    """Write the model to a folder, which appears whole or not at all.

    An existing folder is an error; with `replace` it gives way at the last moment, and a reader finds the old
    model or the new one at any time.
    """
    with new_folder(path, replace=replace) as folder:
        write_files(model, folder)


def write_files(model: TransformerLM, folder: Path) -> None:
    """The files of a run folder, into a folder that nobody reads yet."""
    described = {
        "format": FORMAT,
        "version": VERSION,
        "model": "transformer_lm",
        "config": asdict(model.config),
    }
    (folder / CONFIG).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, folder / WEIGHTS)
    save_text(model.text, folder)


def is_run_folder(path: Path) -> bool:
    """Whether there is a folder in our own format, complete or set aside by a killed replacement."""
    config = present(path) / CONFIG
    return config.is_file() and read_object(config).get("format") == FORMAT


def load_folder(path: Path) -> TransformerLM:
    """The model in a run folder. Its weights are private maps of the file: fast, and safe to train on."""
    model = read_files(present(path))
    for name, tensor in model.state_dict().items():
        low, high = torch.aminmax(tensor)  # either is NaN if any number is
        if not (low.isfinite() and high.isfinite()):
            raise ValueError(f"{path}: tensor {name!r} holds NaN or infinity: the run had diverged")
    return model


def read_files(folder: Path) -> TransformerLM:
    """The model in a folder whose numbers are known to be good: none is looked at before it is used."""
    config = run_config(folder)
    files = open_safetensors(folder)
    state = {name: files.tensor(name).to(torch.float32) for name in files.files}
    return build(config, state, text_of_run(folder), str(folder))


def run_config(folder: Path) -> TransformerConfig:
    """The shape of the model in a run folder."""
    path = folder / CONFIG
    described = read_object(path)
    _refuse_unknown(path, "", described, ("format", "version", "model", "config"))
    if described.get("format") != FORMAT or described.get("version") != VERSION:
        found = f"{described.get('format')!r} {described.get('version')!r}"
        raise ValueError(f"{path}: format {found} cannot be read; expected {FORMAT!r} {VERSION}")
    kind = described.get("model")
    if kind not in MODELS:
        raise ValueError(f"{path}: model {kind!r} is unknown; known are {', '.join(sorted(MODELS))}")
    values = described.get("config")
    if not isinstance(values, dict):
        raise ValueError(f"{path}: config must be a table, found {values!r:.40}")
    checked = _checked(path, "config.", values, TransformerConfig)
    if checked.get("rotary_scaling") is not None:
        scaling = _checked(path, "config.rotary_scaling.", checked["rotary_scaling"], RotaryScaling)
        checked["rotary_scaling"] = RotaryScaling(**scaling)
    try:
        return TransformerConfig(**checked)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _checked(path: Path, where: str, values: dict[str, Any], kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    _refuse_unknown(path, where, values, hints)
    for field in fields(kind):
        if field.name not in values:
            if field.default is MISSING:
                raise ValueError(f"{path}: {where}{field.name} is missing")
            continue
        value, allowed = values[field.name], _JSON[hints[field.name]]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            expected = _KIND.get(hints[field.name], "a table or null")
            raise ValueError(f"{path}: {where}{field.name} is {value!r:.40}; expected {expected}")
    return dict(values)


def _refuse_unknown(path: Path, where: str, values: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise ValueError(f"{path}: {where}{key} is unknown; did you mean {where}{near[0]}?")
