"""Run folder, the native model format: config.json, model.safetensors and the tokenizer files.

    {"format": "unspool", "version": 1, "config": {"kind": "transformer_lm", …}}

Writing is atomic. The weights have a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from unspool.arguments import one_of
from unspool.config import unknown
from unspool.engine.weight_formats import all_finite
from unspool.io import complete_folder, new_folder, read_json_object
from unspool.models import MODELS, config_from_dict, config_to_dict
from unspool.models.loading.assembly import build_model, errors_with_label
from unspool.models.loading.huggingface_export import check_tokenizer, write_huggingface
from unspool.models.loading.safetensors_files import WEIGHTS, open_safetensors, write_safetensors
from unspool.models.loading.weights import WeightFormat
from unspool.models.lora import merged_weights
from unspool.tokenization.tokenizer import SETTINGS_FILE, TOKENIZER_FILE, Tokenizer

CONFIG = "config.json"
FORMAT, VERSION = "unspool", 1


def write_run_folder(model: Any, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the files of a run folder into a temporary folder; `weights` replace those of the model."""
    config = {"format": FORMAT, "version": VERSION, "config": config_to_dict(model.config)}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_safetensors(_unshared(merged_weights(model) if weights is None else weights), folder / WEIGHTS)
    if model.tokenizer is not None:
        check_tokenizer(model.tokenizer).save(folder)


def _unshared(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in main memory without shared storage, which safetensors rejects."""
    unshared: dict[str, Tensor] = {}
    storages = set[int]()
    for name, tensor in state.items():
        copied = tensor.detach().cpu().contiguous()
        storage = copied.untyped_storage().data_ptr()
        unshared[name] = copied.clone() if storage in storages else copied
        storages.add(storage)
    return unshared


def is_run_folder(path: Path) -> bool:
    """True for a run folder, complete or set aside by an interrupted replacement."""
    config = complete_folder(path) / CONFIG
    return config.is_file() and read_json_object(config).get("format") == FORMAT


def load_folder(path: Path, weights: WeightFormat = "float32") -> Any:
    """Load the model of a run folder. Float32 weights are private maps or copies, so training is safe."""
    folder = complete_folder(path)
    tokenizer = load_run_tokenizer(folder)
    return build_model(run_config(folder), open_safetensors(folder), tokenizer=tokenizer, weights=weights)


def load_run_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a run folder, or None."""
    has_tokenizer = any((folder / name).exists() for name in (SETTINGS_FILE, TOKENIZER_FILE))
    return Tokenizer.load(folder) if has_tokenizer else None


def run_config(folder: Path) -> Any:
    path = folder / CONFIG
    content = dict(read_json_object(path))
    version = f"{content.pop('format', None)!r} {content.pop('version', None)!r}"
    if version != f"{FORMAT!r} {VERSION}":
        raise ValueError(f"{path}: format {version} cannot be read; expected {FORMAT!r} {VERSION}")
    config = content.pop("config", None)
    if content:
        raise ValueError(f"{path}: {unknown(next(iter(content)), ['format', 'version', 'config'], 'key')}")
    if not isinstance(config, dict):
        raise ValueError(f"{path}: config must be a table, found {config!r:.40}")
    with errors_with_label(str(path)):
        return config_from_dict(config, "config")


def save(model: Any, folder: str | PathLike[str], *, format: str = "unspool") -> None:  # noqa: A002
    """Write a model and its tokenizer to a folder; `us.load` restores the same log-probabilities.

        us.save(model, "folder");   us.load("folder")

    `format` "unspool" writes a run folder and supports every model. "huggingface" writes a folder for
    `from_pretrained` of `AutoModelForCausalLM` (Llama, GPT-2), `AutoModelForSeq2SeqLM` (BART, Marian, T5) and
    `AutoTokenizer`; `us.load` reads that, too. LoRA adapters are merged.

    Writing is atomic. An existing folder must be empty or hold only a saved model, which is replaced. Weights
    keep the model's dtype: load a bfloat16 model with dtype="bfloat16".
    """
    if not isinstance(folder, str | PathLike) or not fspath(folder):
        raise TypeError(f"a model is saved to a folder, given by name or path, not to {folder!r:.80}")
    one_of("format", format, FORMATS)
    _check_model(model)
    path = Path(fspath(folder)).expanduser()
    _check_folder(path)
    try:
        with new_folder(path, replace=True) as temporary:
            FORMATS[format](model, temporary)
    except SafetensorError as error:
        raise OSError(f"{path}: the weights cannot be written: {error}") from error


FORMATS: dict[str, Callable[[Any, Path], None]] = {
    "huggingface": write_huggingface,
    "unspool": write_run_folder,
}


def _check_model(model: Any) -> None:
    if type(getattr(model, "config", None)) not in MODELS.values() or not hasattr(model, "state_dict"):
        kinds = ", ".join(config.__name__.removesuffix("Config") for config in MODELS.values())
        raise TypeError(
            f"cannot save a {type(model).__name__}: expected a model that us.load or us.train returns "
            f"({kinds}). Save its component models to separate folders"
        )
    for name, tensor in model.state_dict().items():
        if tensor.is_meta:
            raise ValueError(f"tensor {name!r} is on the device 'meta' and has no values to save")
        if not all_finite(tensor.detach()):
            raise ValueError(f"tensor {name!r} holds NaN or infinity: such a model cannot generate")


def _check_folder(path: Path) -> None:
    """Reject a folder with other content; `new_folder` checks saved models again when it replaces them."""
    if path.is_dir() and any(path.iterdir()) and not is_run_folder(path):
        first = min(entry.name for entry in path.iterdir())
        raise FileExistsError(
            f"{path} holds {first} and is not a saved model; choose another name, or remove it"
        )
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file, not a folder; choose another name")
