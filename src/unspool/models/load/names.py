"""What a model may be called, and how each kind of name is found: on disk first, on the network last."""

from __future__ import annotations

import difflib
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.models.load.assembly import build
from unspool.models.load.builtin import BUILTIN, builtin_folder
from unspool.models.load.cache import through_cache
from unspool.models.load.default import default_model
from unspool.models.load.device import usable_device
from unspool.models.load.folder import is_run_folder, load_folder
from unspool.models.load.gguf_file import is_gguf, open_gguf
from unspool.models.load.gguf_weights import gguf_weights
from unspool.models.load.hub import hub_folder, is_hub_id
from unspool.models.load.huggingface_folder import huggingface_weights
from unspool.models.load.packages import PACKAGES, package_file
from unspool.models.load.precision import known_precision
from unspool.models.load.safetensors_files import PICKLES
from unspool.models.load.tokenizer import text_of_gguf, text_of_huggingface

if TYPE_CHECKING:
    import torch

    from unspool.models.transformer_lm import TransformerLM
    from unspool.protocols import Model


def load(
    name: str | PathLike[str] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
) -> Model:
    """The model of that name: a run folder, a Hugging Face folder, a GGUF file, a built-in model, a model
    package or a Hub id.

    What is on disk goes first, then built-in models and model packages, then the Hub. Without a name it is
    smollm2 where its package is installed, else a small language model that comes with this one. The model is
    ready to generate (dropout is off); its `text` is None where no tokenizer came with it.

    `dtype` "bfloat16" or "float16" halves the memory of the weights. Log-probabilities are normalised all the
    same; those of bfloat16 are off by some hundredths, those of float16 by some thousandths.
    """
    name = default_model() if name is None else name
    if not isinstance(name, str | PathLike):
        raise TypeError(f'a model is loaded by its name or path, as in load("smollm2"), not by {name!r:.80}')
    place, precision = usable_device(device), known_precision(dtype)  # before the work of loading
    model: Model = _find(fspath(name)).to(place, precision)
    return model


def _find(name: str) -> Any:
    path = Path(name).expanduser()
    if is_run_folder(path):
        return load_folder(path)
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return _from_file(path)
    if name in BUILTIN:
        return load_folder(builtin_folder(name))
    if name in PACKAGES:
        return through_cache(package_file(name), _convert)
    if is_hub_id(name):
        return _from_folder(hub_folder(name))
    names = (*BUILTIN, *PACKAGES)
    known = sorted(names, key=lambda known: -difflib.SequenceMatcher(None, known, name).ratio())
    raise FileNotFoundError(
        f"no model {name!r}: there is no such folder or file, no built-in model, no model package of that "
        f"name (known: {', '.join(known)}), and it is no id of the Hugging Face Hub (owner/model)"
    )


def _from_folder(folder: Path) -> TransformerLM:
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f"; for {files[0]}, give the path of that file" if files else ""
        raise FileNotFoundError(
            f"{folder} is no model: it has no config.json; expected a run folder or a Hugging Face folder "
            f"(config.json, model.safetensors, tokenizer.json){hint}"
        )
    config, state = huggingface_weights(folder)
    return build(config, state, text_of_huggingface(folder), str(folder))


def _from_file(path: Path) -> TransformerLM:
    if is_gguf(path):
        return through_cache(path, _convert)
    if path.suffix in PICKLES:
        raise ValueError(
            f"{path}: a pickle can run code when it is read, so it is never opened; "
            "save the model as safetensors and give its folder"
        )
    if path.suffix == ".safetensors":
        raise ValueError(f"{path}: give the folder instead, with the model's config.json: {path.parent}")
    raise ValueError(
        f"{path}: not a GGUF file; expected one, or a folder with config.json and model.safetensors"
    )


def _convert(path: Path) -> TransformerLM:
    file = open_gguf(path)
    config, state = gguf_weights(file)
    return build(config, state, text_of_gguf(file), str(path))
