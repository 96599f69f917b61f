"""Read and write safetensors: one file, or shards with an index. Pickles are never opened.

Files of this package store a checksum in their metadata, which is verified on reading; other files do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import BF16, F16, F32, all_finite
from unspool.io import checksum, read_json_object
from unspool.models.loading.weight_layout import SourcePart, TensorSource

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Suffixes of files for `torch.load`, which can run code."""
CHECKSUM = "unspool.crc32"
_FLOATS = ("F64", "F32", "F16", "BF16")
_FORMATS = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}


class SafetensorsFiles(TensorSource):
    """Named tensors on disk, memory-mapped on access; `files` are the open files by tensor name."""

    def __init__(self, label: str, files: Mapping[str, Any]) -> None:
        self.label, self.files = label, files
        self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name, file in files.items()}

    def tensor(self, name: str) -> Tensor:
        """The tensor as a private map of the file, so that writing to it never reaches the disk."""
        kind = self.files[name].get_slice(name).get_dtype()
        if kind not in _FLOATS:
            known = ", ".join(_FLOATS)
            raise ValueError(f"{self.label}: tensor {name!r} is stored as {kind}; readable are {known}")
        return self.files[name].get_tensor(name)

    def stored(self, part: SourcePart) -> StoredWeight | None:
        if len(part.shape) != 2:
            return None
        tensor = self._rows(part)
        if tensor.dtype not in _FORMATS:
            tensor = tensor.float()
        tensor = tensor.T.contiguous() if part.transposed else tensor
        rows, columns = tensor.shape
        weight = StoredWeight(_FORMATS[tensor.dtype], tensor.view(torch.uint8), (rows, columns))
        self.check_finite(part.source, weight.is_finite())
        return weight

    def fill(self, part: SourcePart, out: Tensor) -> None:
        tensor = self._rows(part)
        out.copy_(tensor.T if part.transposed else tensor)
        self.check_finite(part.source, all_finite(out))

    def _rows(self, part: SourcePart) -> Tensor:
        """The stored tensor without skipped rows."""
        tensor = self.tensor(part.source)
        if part.is_row:
            return tensor[0]
        return tensor[part.skipped_rows :] if part.skipped_rows else tensor


def open_safetensors(folder: Path) -> SafetensorsFiles:
    """The weights of a folder, from model.safetensors or from the shards of its index."""
    if (folder / WEIGHTS).is_file():
        return SafetensorsFiles(str(folder / WEIGHTS), _open_file(folder / WEIGHTS))
    if (folder / INDEX).is_file():
        return SafetensorsFiles(str(folder), _open_shards(folder))
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise ValueError(
            f"{folder}: weights only as {', '.join(pickles[:3])}: pickles can run code and are never opened. "
            "If you trust the file, convert it: python -c 'from transformers import "
            f'AutoModelForCausalLM as M; M.from_pretrained("{folder}").save_pretrained("{folder}")\''
        )
    raise FileNotFoundError(f"{folder}: the folder has no weights: {WEIGHTS} and {INDEX} are missing")


def write_safetensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a file with a checksum, which `check_safetensors` verifies."""
    save_file(dict(tensors), path, {**(metadata or {}), CHECKSUM: "0" * 8})
    begin, end = _checksum_range(path)
    digits = checksum(path, (begin, end))
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(digits.encode())


def check_safetensors(path: Path, metadata: Mapping[str, str] | None) -> None:
    """Reject a file whose checksum, if it has one, does not match."""
    stored = (metadata or {}).get(CHECKSUM)
    if stored is not None and stored != checksum(path, _checksum_range(path)):
        raise ValueError(
            f"{path}: the checksum does not match: the file is damaged; copy it again, or save or train the "
            "model again"
        )


def _checksum_range(path: Path) -> tuple[int, int]:
    """The byte range of the checksum digits in the file."""
    with path.open("rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
    key = f'"{CHECKSUM}":"'.encode()
    begin = 8 + header.index(key) + len(key)
    return begin, begin + 8


def _open_file(path: Path) -> dict[str, Any]:
    try:
        file: Any = safe_open(str(path), framework="pt")
        check_safetensors(path, file.metadata())
        return dict.fromkeys(file.keys(), file)
    except SafetensorError as error:
        raise ValueError(
            f"{path}: not a complete safetensors file ({error}); fetch or write it again"
        ) from error


def _open_shards(folder: Path) -> dict[str, Any]:
    index = read_json_object(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(shard, str) for shard in index.values()):
        raise ValueError(f"{folder / INDEX}: weight_map must map tensor names to file names")
    files: dict[str, Any] = {}
    for shard in sorted(set(index.values())):
        if Path(shard).name != shard or "\\" in shard:
            raise ValueError(f"{folder / INDEX}: {shard!r} is not the name of a file in the same folder")
        if not (folder / shard).is_file():
            raise FileNotFoundError(f"{folder / shard}: this shard is missing; fetch the complete model")
        files |= _open_file(folder / shard)
    for name, shard in index.items():
        if name not in files:
            raise ValueError(f"{folder / shard}: tensor {name!r} is missing, although {INDEX} lists it")
    return files
