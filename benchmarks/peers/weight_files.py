"""The same weights in everybody's format, written once into the cache folder.

    python -m peers.weight_files FILE.gguf FOLDER [llama=PYTHON] [openvino=PYTHON] …      (generate.py does it)

    original → float32 ─┬→ huggingface/            Hugging Face, vLLM
                        ├→ ctranslate2-float32/, ctranslate2-int8/
                        ├→ openvino-float32/
                        ├→ onnx-float32/, onnx-int8/, onnx-int4/
                        └→ f32.gguf, q8_0.gguf, q4_0.gguf; by llama.cpp: q4_k_m.gguf, q6_k.gguf

What cannot be written is left out, and says why in a file of its name and ".missing".
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.io import cache_folder, new_file
from unspool.models.loading.gguf_file import GGUFTensor, open_gguf
from unspool.models.loading.model_names import PACKAGES, package_file

if TYPE_CHECKING:
    import unspool as us

GGUF_TYPES = ("f32", "q8_0", "q4_0")
LLAMA_TYPES = ("q4_k_m", "q6_k")
"""Mixtures of types that llama.cpp writes."""
CTRANSLATE2_TYPES = ("float32", "int8")
ONNX_TYPES = {"float32": "fp32", "int8": "int8", "int4": "int4"}
"""With their names in the builder of ONNX Runtime GenAI."""
FLOAT32_BYTES = 4.0
INT8_BYTES = 1 + 4 / 64
"""Of a weight of unspool's int8: its own byte, and its share of a float32 scale for 64 of them."""


def source_of(model: str) -> Path:
    """The GGUF file of an installed model package, or that of the path."""
    if model in PACKAGES:
        return package_file(model)
    if not model.endswith(".gguf") or not Path(model).is_file():
        raise SystemExit(f"{model!r} is no GGUF file and no model package ({', '.join(PACKAGES)})")
    return Path(model).resolve()


def folder_of(source: Path) -> Path:
    """Where a file's other formats are kept: found by its name, size and beginning."""
    with source.open("rb") as file:
        start = hashlib.sha256(file.read(1 << 20) + str(source.stat().st_size).encode()).hexdigest()[:12]
    return cache_folder() / "benchmarks" / f"{source.stem}-{start}"


def read_tensors(file: Path) -> list[GGUFTensor]:
    """What every step reads: all but a table of embeddings that is not the head as well."""
    tensors = open_gguf(file).tensors
    return [
        it for name, it in tensors.items() if name != "token_embd.weight" or "output.weight" not in tensors
    ]


def stored_bytes(file: Path) -> int:
    return sum(tensor.size for tensor in read_tensors(file))


def converted_bytes(file: Path, each: float) -> int:
    """What a step would read if every weight took that many bytes."""
    return round(sum(math.prod(tensor.shape) for tensor in read_tensors(file)) * each)


def write_in_process(source: Path, folder: Path, pythons: Mapping[str, str] | None = None) -> None:
    """`write_all` in a process of its own, so that its memory is free afterwards."""
    command = [sys.executable, "-m", "peers.weight_files", str(source), str(folder)]
    command += [f"{peer}={python}" for peer, python in (pythons or {}).items()]
    here = Path(__file__).resolve().parents[1]
    subprocess.run(command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def write_all(source: Path, folder: Path, pythons: Mapping[str, str]) -> None:
    """Write every format; some need the Python of the engine that reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in GGUF_TYPES:
        unless_there(folder / f"{name}.gguf", lambda path, name=name: _write_gguf(source, path, name))
    for name in LLAMA_TYPES if "llama" in pythons else ():
        unless_there(
            folder / f"{name}.gguf", lambda path, name=name: _quantise(folder, path, name, pythons["llama"])
        )
    huggingface = folder / "huggingface"
    unless_there(huggingface, lambda path: _write_huggingface(source, path))
    for name in CTRANSLATE2_TYPES:
        unless_there(
            folder / f"ctranslate2-{name}",
            lambda path, name=name: _write_ctranslate2(huggingface, path, name),
        )
    if "openvino" in pythons:
        unless_there(
            folder / "openvino-float32", lambda path: _write_openvino(huggingface, path, pythons["openvino"])
        )
    for name in ONNX_TYPES if "onnxruntime" in pythons else ():
        unless_there(
            folder / f"onnx-{name}",
            lambda path, name=name: _write_onnx(huggingface, path, name, pythons["onnxruntime"]),
        )


def unless_there(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file or folder that is not there; why it cannot be written is kept for `absence`."""
    if path.exists():
        return
    try:
        write(path)
        _excuse(path).unlink(missing_ok=True)
    except Exception as error:  # one format must not keep the others away
        _excuse(path).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


def absence(path: Path) -> str | None:
    """Why a file is not there; None where it is."""
    if path.exists():
        return None
    excuse = _excuse(path)
    return excuse.read_text(encoding="utf-8") if excuse.exists() else f"there is no {path}"


def _excuse(path: Path) -> Path:
    return path.with_name(f"{path.name}.missing")


def _write_gguf(source: Path, path: Path, name: str) -> None:
    from gguf import GGMLQuantizationType

    from peers.gguf_writing import requantise

    requantise(source, path, GGMLQuantizationType[name.upper()])


def _quantise(folder: Path, path: Path, name: str, llama_python: str) -> None:
    with new_file(path) as fresh:
        command = [llama_python, "-m", "peers.llama_quantise", str(folder / "f32.gguf"), str(fresh), name]
        subprocess.run(command, check=True)


def _write_huggingface(source: Path, path: Path) -> None:
    import unspool as us
    from unspool.io import new_folder

    model = us.load(source, weights="float32")
    with new_folder(path) as folder:
        us.to_huggingface(model).save_pretrained(folder)
        _save_tokenizer(model, folder)


def _save_tokenizer(model: us.models.TransformerLM, folder: Path) -> None:
    text = model.tokenizer
    text.save(folder)
    special = {"bos_token": text.bos_token, "eos_token": text.eos_token, "unk_token": text.eos_token}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def _write_ctranslate2(huggingface: Path, path: Path, precision: str) -> None:
    from ctranslate2.converters import TransformersConverter

    from unspool.io import new_folder

    quantised = None if precision == "float32" else precision
    with new_folder(path) as folder:
        TransformersConverter(str(huggingface)).convert(str(folder), quantization=quantised, force=True)


def _write_openvino(huggingface: Path, path: Path, python: str) -> None:
    export = ["export", "openvino", "--task", "text-generation-with-past", "--weight-format", "fp32"]
    _write_elsewhere(
        path, lambda folder: [python, "-m", OPTIMUM, *export, "--model", str(huggingface), str(folder)]
    )


def _write_onnx(huggingface: Path, path: Path, precision: str, python: str) -> None:
    builder = [python, "-m", "onnxruntime_genai.models.builder", "-i", str(huggingface), "-e", "cpu"]
    with tempfile.TemporaryDirectory() as cache:
        options = ["-p", ONNX_TYPES[precision], "-c", cache]
        _write_elsewhere(path, lambda folder: [*builder, *options, "-o", str(folder)])


OPTIMUM = "optimum.commands.optimum_cli"


def _write_elsewhere(path: Path, command: Callable[[Path], list[str]]) -> None:
    """Write a folder by a command; what it said last is the reason where it fails."""
    from unspool.io import new_folder

    with new_folder(path) as folder:
        done = subprocess.run(command(folder), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])


if __name__ == "__main__":
    write_all(Path(sys.argv[1]), Path(sys.argv[2]), dict(it.split("=", 1) for it in sys.argv[3:]))
