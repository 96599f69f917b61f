"""Who takes part: every engine with its weights, or why it cannot.

Some engines have an environment of their own, made by `make peers`: llama.cpp is compiled when it is installed, and
the others want versions that exclude each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peers.weight_files import (
    CTRANSLATE2_TYPES,
    FLOAT32_BYTES,
    GGUF_TYPES,
    INT8_BYTES,
    LLAMA_TYPES,
    ONNX_TYPES,
    absence,
    converted_bytes,
    stored_bytes,
)

REFERENCE = "Hugging Face"


@dataclass(frozen=True)
class Contender:
    """An engine with weights, ready to be started with a number of threads."""

    name: str
    module: str
    settings: dict[str, Any]
    weight_bytes: int
    """That every step reads."""
    exact: bool = False
    """Whether it computes with the float32 weights, so that it must write the reference's text."""
    prepares: bool = False
    """Whether its very first start compiles kernels, which are kept."""
    python: str = field(default=sys.executable)


MODULES = {
    "llama": "llama_cpp",
    "openvino": "openvino_genai",
    "onnxruntime": "onnxruntime_genai",
    "vllm": "vllm",
}
"""The names of the environments, and the module that each has."""


def peer_python(peer: str) -> str:
    """The Python that has an engine: this one, or that of the environment beside this one's."""
    if find_spec(MODULES[peer]) is not None:
        return sys.executable
    beside = Path(f"{sys.prefix}-{peer}") / "bin" / "python"
    if not beside.exists():
        raise FileNotFoundError(f"{MODULES[peer]} is not installed; `make peers` installs it")
    return str(beside)


def llama_python(given: str | None = None) -> str:
    """The Python that has llama-cpp-python; `given` wins."""
    return peer_python("llama") if given is None else given


def peer_pythons(llama: str | None = None) -> dict[str, str]:
    """The Pythons of all engines that are installed."""
    found = {} if llama is None else {"llama": llama}
    for peer in MODULES:
        with suppress(FileNotFoundError):
            found.setdefault(peer, peer_python(peer))
    return found


def unspool(source: Path, name: str, engine: str, weights: str) -> Contender:
    each = {"float32": FLOAT32_BYTES, "int8": INT8_BYTES}
    size = stored_bytes(source) if weights == "stored" else converted_bytes(source, each[weights])
    return Contender(
        f"unspool {name}",
        "peers.unspool_engine",
        {"file": str(source), "engine": engine, "weights": weights},
        size,
        exact=weights == "float32",
        prepares=True,
    )


def llama_cpp(file: Path, name: str, context: int, python: str) -> Contender:
    return Contender(
        f"llama.cpp {name}",
        "peers.llama_cpp_engine",
        {"file": str(file), "context": context},
        stored_bytes(file),
        exact=name == "f32",
        python=python,
    )


def openvino(folder: Path, python: str) -> Iterator[tuple[Path, Contender]]:
    """Every model of OpenVINO after its file or folder; a size is 0 where there is none."""
    module = "peers.openvino_engine"
    path = folder / "openvino-float32"
    size = file_size(path / "openvino_model.bin")
    settings = {"model": str(path), "exact": True}
    yield path, Contender("OpenVINO float32", module, settings, size, exact=True, python=python)
    for name in ("q8_0", "q4_0"):
        path = folder / f"{name}.gguf"
        size = stored_bytes(path) if path.exists() else 0
        settings = {"model": str(path), "exact": False}
        yield path, Contender(f"OpenVINO {name}", module, settings, size, python=python)


def onnxruntime(folder: Path, python: str) -> Iterator[tuple[Path, Contender]]:
    module = "peers.onnxruntime_engine"
    for name in ONNX_TYPES:
        path = folder / f"onnx-{name}"
        size, settings = file_size(path / "model.onnx.data"), {"folder": str(path)}
        exact = name == "float32"
        yield path, Contender(f"ONNX Runtime {name}", module, settings, size, exact, python=python)


def vllm(folder: Path, context: int, python: str) -> Iterator[tuple[Path, Contender]]:
    path = folder / "huggingface"
    settings = {"folder": str(path), "context": context}
    size = file_size(path / "model.safetensors")
    yield path, Contender("vLLM float32", "peers.vllm_engine", settings, size, exact=True, python=python)


def file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def full_lineup(
    source: Path, folder: Path, context: int, python: str | None
) -> tuple[list[Contender], dict[str, str]]:
    """Everybody who can take part, and of the others why not."""
    absent: dict[str, str] = {}

    def there(name: str, path: Path) -> bool:
        reason = absence(path)
        if reason is not None:
            absent[name] = reason
        return reason is None

    found = []
    exact_bytes = converted_bytes(source, FLOAT32_BYTES)
    if there(REFERENCE, folder / "huggingface"):
        settings = {"folder": str(folder / "huggingface")}
        found.append(Contender(REFERENCE, "peers.hugging_face", settings, exact_bytes, exact=True))
    for precision in CTRANSLATE2_TYPES:
        name, converted = f"CTranslate2 {precision}", folder / f"ctranslate2-{precision}"
        if there(name, converted):
            settings = {"folder": str(converted), "precision": precision}
            size = (converted / "model.bin").stat().st_size
            found.append(Contender(name, "peers.ctranslate2_engine", settings, size, precision == "float32"))
    try:
        path = llama_python(python)
        found += [
            llama_cpp(folder / f"{kind}.gguf", kind, context, path)
            for kind in (*GGUF_TYPES, *LLAMA_TYPES)
            if there(f"llama.cpp {kind}", folder / f"{kind}.gguf")
        ]
        found.append(llama_cpp(source, "stored", context, path))
    except FileNotFoundError as error:
        absent["llama.cpp"] = str(error)
    others: dict[str, tuple[str, Callable[[str], Iterator[tuple[Path, Contender]]]]] = {
        "openvino": ("OpenVINO", lambda python: openvino(folder, python)),
        "onnxruntime": ("ONNX Runtime", lambda python: onnxruntime(folder, python)),
        "vllm": ("vLLM", lambda python: vllm(folder, context, python)),
    }
    for peer, (engine, models) in others.items():
        try:
            path = peer_python(peer)
        except FileNotFoundError as error:
            absent[engine] = str(error)
            continue
        found += [it for file, it in models(path) if there(it.name, file)]
    found += [
        unspool(source, "torch", "torch", "float32"),
        unspool(source, "compiled", "compiled", "float32"),
        unspool(source, "int8", "compiled", "int8"),
        unspool(source, "stored", "compiled", "stored"),
    ]
    found += [
        unspool(folder / f"{kind}.gguf", kind, "compiled", "stored")
        for kind in (*GGUF_TYPES, *LLAMA_TYPES)
        if kind != "f32" and there(f"unspool {kind}", folder / f"{kind}.gguf")
    ]
    return found, absent


def chosen(contenders: list[Contender], wanted: list[str] | None) -> list[Contender]:
    """Those whose name begins with one of the wanted, and always the reference."""
    if wanted is None:
        return contenders
    for name in wanted:
        if not any(it.name.lower().startswith(name.lower()) for it in contenders):
            raise SystemExit(f"no engine {name!r}; there are {', '.join(it.name for it in contenders)}")
    begin = tuple(name.lower() for name in (*wanted, REFERENCE))
    return [it for it in contenders if it.name.lower().startswith(begin)]
