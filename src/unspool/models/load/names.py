"""What a model may be called, and how each kind of name is found: on disk first, on the network last."""

from __future__ import annotations

import difflib
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.deferred import uncollected
from unspool.models.engine_choice import known_engine
from unspool.models.load.assembly import build
from unspool.models.load.builtin import BUILTIN, builtin_folder
from unspool.models.load.default import default_model
from unspool.models.load.device import usable_device
from unspool.models.load.dtypes import PRECISIONS, known_precision
from unspool.models.load.folder import is_run_folder, load_folder
from unspool.models.load.gguf_file import is_gguf, open_gguf
from unspool.models.load.gguf_weights import gguf_weights
from unspool.models.load.hub import hub_folder, is_hub_id
from unspool.models.load.huggingface_folder import huggingface_weights
from unspool.models.load.kept_weights import Weights, known_weights
from unspool.models.load.memory import fitting
from unspool.models.load.packages import PACKAGES, package_file
from unspool.models.load.safetensors_files import PICKLES
from unspool.models.load.tokenizer import text_of_gguf, text_of_huggingface
from unspool.text.huggingface_tokenizer import eos_ids_of_folder

if TYPE_CHECKING:
    import torch

    from unspool.models.sequence_model import SequenceModel
    from unspool.models.transformer_lm import TransformerLM
    from unspool.protocols import Model


@uncollected()
def load(
    name: str | PathLike[str] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
    weights: str | None = None,
    engine: str | None = None,
) -> Model:
    """`us.load` for the models that this package runs itself; for all others, `UnsupportedModelError`."""
    found = check_name(name)
    # All of it before the work of loading.
    place, precision, kept = usable_device(device), known_precision(dtype), known_weights(weights)
    known_engine(engine)
    if kept != "float32" and (place.type, precision) != ("cpu", PRECISIONS["float32"]):
        asked = f"device={str(place)!r}, dtype={str(precision).removeprefix('torch.')!r}"
        raise ValueError(
            f"weights={kept!r} are multiplied with float32 numbers on the CPU, and {asked} was asked for: "
            "leave weights out there"
        )
    with fitting(found, kept):
        model = _find(found, kept).to(place, precision)
    if engine is not None:
        _take(model, engine)
    loaded: Model = model
    return loaded


def check_name(name: Any) -> str:
    """The name or path of a model as a string; None is the default one."""
    name = default_model() if name is None else name
    if not isinstance(name, str | PathLike):
        raise TypeError(f'a model is loaded by its name or path, as in load("smollm2"), not by {name!r:.80}')
    if not fspath(name):  # a path of no name would be the folder that one happens to be in
        raise ValueError(f'the name of the model is empty: give one, as in load("{default_model()}")')
    return fspath(name)


def _take(model: Any, engine: str) -> None:
    """Let that engine run the model, or say why it cannot."""
    if model.engine is not None:
        model.engine = engine
        model.engine  # noqa: B018 (it is refused when it is asked for)
    elif engine != "torch":
        raise ValueError(f"a {type(model).__name__} has no engine but torch: leave engine={engine!r} out")


def _find(name: str, weights: Weights) -> Any:
    path = Path(name).expanduser()
    if is_run_folder(path):
        return load_folder(path, weights)
    if path.is_dir():
        return _from_folder(path, weights)
    if path.is_file():
        return _from_file(path, weights)
    if name in BUILTIN:
        return load_folder(builtin_folder(name), weights)
    if name in PACKAGES:
        return _from_gguf(package_file(name), weights)
    if is_hub_id(name):
        return _from_folder(hub_folder(name), weights)
    names = (*BUILTIN, *PACKAGES)
    known = sorted(names, key=lambda known: -difflib.SequenceMatcher(None, known, name).ratio())
    raise FileNotFoundError(
        f"no model {name!r}: there is no such folder or file, no built-in model, no model package of that "
        f"name (known: {', '.join(known)}), and it is no id of the Hugging Face Hub (owner/model)"
    )


def huggingface_folder(name: str) -> Path | None:
    """The folder of a model that its name says to be in Hugging Face's form; None for every other model."""
    path = Path(name).expanduser()
    if path.exists() or name in BUILTIN or name in PACKAGES:
        return path if path.is_dir() and not is_run_folder(path) else None
    return hub_folder(name) if is_hub_id(name) else None


def gguf_path(name: str) -> Path | None:
    """The GGUF file of a model; None for every other model."""
    path = Path(name).expanduser()
    if path.exists() or name in BUILTIN:
        return path if path.is_file() and is_gguf(path) else None
    return package_file(name) if name in PACKAGES else None


def _from_folder(folder: Path, weights: Weights) -> SequenceModel:
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f"; for {files[0]}, give the path of that file" if files else ""
        raise FileNotFoundError(
            f"{folder} is no model: it has no config.json; expected a run folder or a Hugging Face folder "
            f"(config.json, model.safetensors, tokenizer.json){hint}"
        )
    config, state = huggingface_weights(folder, weights)
    model = build(config, state, text_of_huggingface(folder), str(folder))
    if model.text is None:
        model.config_eos_ids |= {it for it in eos_ids_of_folder(folder) if 0 <= it < model.vocab_size}
    return model


def _from_file(path: Path, weights: Weights) -> TransformerLM:
    if is_gguf(path):
        return _from_gguf(path, weights)
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


def _from_gguf(path: Path, weights: Weights) -> TransformerLM:
    file = open_gguf(path)
    config, state = gguf_weights(file, weights)
    return build(config, state, text_of_gguf(file), str(path))
