"""The tensors of a folder, in one safetensors file or in shards with an index. Pickles are never opened.

Files that are written here carry their checksum among their metadata; it is compared when they are read.
Files from elsewhere have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import BF16, F16, F32, all_finite
from unspool.io import checksum
from unspool.models.loading.weight_layout import SourcePart
from unspool.tokenization.tokenizer import read_json_object

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""How the names of files end that `torch.load` would read, and that could run code when read."""
CHECKSUM = "unspool.crc32"
_FLOATS = ("F64", "F32", "F16", "BF16")
_FORMATS = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}


@dataclass(frozen=True)
class SafetensorsFiles:
    """Named tensors on disk, mapped into memory when asked for."""

    label: str
    """Where they are, for messages."""
    files: Mapping[str, Any]
    """Tensor name → the open file that holds it."""

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape."""
        return {name: tuple(file.get_slice(name).get_shape()) for name, file in self.files.items()}

    def tensor(self, name: str) -> Tensor:
        """The tensor itself: a private map of the file, so that writing to it never reaches the disk."""
        kind = self.files[name].get_slice(name).get_dtype()
        if kind not in _FLOATS:
            known = ", ".join(_FLOATS)
            raise ValueError(f"{self.label}: tensor {name!r} is stored as {kind}; readable are {known}")
        tensor: Tensor = self.files[name].get_tensor(name)
        return tensor

    def stored(self, piece: SourcePart) -> StoredWeight | None:
        """The matrix as it lies in the file, unless it must be turned; None where it is no matrix."""
        assert piece.source is not None
        if len(piece.shape) != 2:
            return None
        tensor = self._taken(piece)
        if tensor.dtype not in _FORMATS:
            tensor = tensor.float()
        tensor = tensor.T.contiguous() if piece.turned else tensor
        rows, columns = tensor.shape
        weight = StoredWeight(_FORMATS[tensor.dtype], tensor.view(torch.uint8), (rows, columns))
        if not weight.is_finite():
            self._refuse(piece.source)
        return weight

    def fill(self, piece: SourcePart, out: Tensor) -> None:
        """Write the piece's numbers into `out`."""
        assert piece.source is not None
        tensor = self._taken(piece)
        out.copy_(tensor.T if piece.turned else tensor)
        if not all_finite(out):
            self._refuse(piece.source)

    def let_go(self, piece: SourcePart) -> None:
        """Nothing: the library has mapped the file as a whole, until the last of its tensors is gone."""

    def _taken(self, piece: SourcePart) -> Tensor:
        """The stored tensor without what is left out of it."""
        assert piece.source is not None
        tensor = self.tensor(piece.source)
        if piece.in_row:
            return tensor[0]
        return tensor[piece.skipped :] if piece.skipped else tensor

    def _refuse(self, name: str) -> NoReturn:
        raise ValueError(
            f"{self.label}: tensor {name!r} holds NaN or infinity: a damaged file, or a run that had diverged"
        )


def open_safetensors(folder: Path) -> SafetensorsFiles:
    """The folder's weights, from model.safetensors or from the shards that its index lists."""
    if (folder / WEIGHTS).is_file():
        return SafetensorsFiles(str(folder / WEIGHTS), _open_file(folder / WEIGHTS))
    if (folder / INDEX).is_file():
        return SafetensorsFiles(str(folder), _open_shards(folder))
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise ValueError(
            f"{folder}: weights only as {', '.join(pickles[:3])}: a pickle can run code when it is read, so "
            "none is ever opened. If you trust it, convert it: python -c 'from transformers import "
            f'AutoModelForCausalLM as M; M.from_pretrained("{folder}").save_pretrained("{folder}")\''
        )
    raise FileNotFoundError(f"{folder}: neither {WEIGHTS} nor {INDEX} is there: the folder has no weights")


def write_safetensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """A file of tensors and its checksum, which `check_safetensors` compares."""
    save_file(dict(tensors), path, {**(metadata or {}), CHECKSUM: "0" * 8})
    begin, end = _checksum_place(path)
    found = checksum(path, (begin, end))
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(found.encode())


def check_safetensors(path: Path, metadata: Mapping[str, str] | None) -> None:
    """Refuse a file that is not what was written, if its metadata tell."""
    said = (metadata or {}).get(CHECKSUM)
    if said is not None and said != checksum(path, _checksum_place(path)):
        raise ValueError(
            f"{path}: the checksum does not match, so the file was damaged after it was written: "
            "copy it again, or save or train the model again"
        )


def _checksum_place(path: Path) -> tuple[int, int]:
    """Where in the file the digits of the checksum are."""
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
            f"{path}: not a whole safetensors file ({error}); fetch or write it again"
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
            raise FileNotFoundError(f"{folder / shard}: this shard is missing; fetch the whole model")
        files |= _open_file(folder / shard)
    for name, shard in index.items():
        if name not in files:
            raise ValueError(f"{folder / shard}: tensor {name!r} is missing, though {INDEX} promises it")
    return files
