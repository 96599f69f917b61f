"""Who takes part: every engine with its weights, or why it cannot.

llama.cpp is compiled when it is installed, so that it has an environment of its own: `make peers`.
"""

from __future__ import annotations

import sys
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


def llama_python(given: str | None = None) -> str:
    """The Python that has llama-cpp-python: this one, or that of the environment beside this one's."""
    if given is not None:
        return given
    if find_spec("llama_cpp") is not None:
        return sys.executable
    beside = Path(f"{sys.prefix}-llama") / "bin" / "python"
    if not beside.exists():
        raise FileNotFoundError("llama-cpp-python is not installed; `make peers` compiles it (ten minutes)")
    return str(beside)


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
