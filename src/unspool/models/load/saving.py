"""Any model of ours into a folder that `load` reads.

    us.save(model, "folder");   us.load("folder")

The folder has the format of a run's (`folder.py`), which holds every kind of model with its head and its
tokenizer, or that of Hugging Face (`huggingface_saving.py`). Adapters are merged into their matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from unspool.files.atomic import new_folder
from unspool.models import MODELS
from unspool.models.adapters import without_adapters
from unspool.models.load.folder import Saveable, is_run_folder, write_files
from unspool.models.load.huggingface_saving import write_huggingface
from unspool.nn.stored.finite import all_finite


def save(model: Saveable, folder: str | PathLike[str], *, format: str = "unspool") -> None:  # noqa: A002
    """Write a model and its tokenizer to a folder, from which `load` gives the same log-probabilities.

    `format` "huggingface" writes a language model of the Llama or GPT-2 family, or an encoder–decoder of
    BART's, Marian's or T5's, as a folder for `from_pretrained` of `AutoModelForCausalLM` or
    `AutoModelForSeq2SeqLM`, and of `AutoTokenizer`; `load` reads that, too.

    The folder appears whole or not at all. One that is there must be empty, or hold nothing but a model that
    was saved before, which gives way. Weights are kept in the model's own precision: what was made in
    bfloat16 is loaded with dtype="bfloat16".
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
    write_files(without_adapters(model), folder)


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
