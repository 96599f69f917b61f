"""GGUF, the container of llama.cpp: its table is read at once, its tensors lazily from a memory map.

Tensors of the types in `nn.stored.formats` are used where they lie in the map; the numbers of others are
restored by `gguf.quants`, block by block. The map is private: writing to it would never reach the file.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from unspool.models.load.gguf_cursor import GGUFCursor
from unspool.models.load.gguf_table import MAGIC, GGUFTensor, read_table
from unspool.nn.stored.formats import GGML
from unspool.nn.stored.weight import StoredWeight

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Numbers restored at once: enough that numpy's own overhead vanishes, few enough that its temporary arrays
# stay in the second-level cache and on the heap (larger ones go back to the system each time).
_CHUNK = 1 << 16
_ALIGNED = 4
"""Bytes that numbers are read from at multiples of; files keep to 32, unless they say otherwise."""


@dataclass(frozen=True)
class GGUFFile:
    """An open GGUF file: its metadata and its tensors, the latter still on disk."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]
    data: mmap.mmap

    def stored(self, name: str, order_R: Tensor | None = None) -> StoredWeight | None:
        """The matrix as it lies in the file, or its packed rows copied in the order `order_R`.

        None where it is no matrix, or of a type that is not multiplied as it is.
        """
        return self._packed(name, order_R) if len(self.tensors[name].shape) == 2 else None

    def _packed(self, name: str, order_R: Tensor | None) -> StoredWeight | None:
        """The tensor's rows, of however many dimensions it is; None where they are of no type of ours."""
        tensor = self.tensors[name]
        kind = GGML.get(tensor.quantisation)
        if kind is None:
            return None
        rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1]
        packed = torch.frombuffer(self.data, dtype=torch.uint8, count=tensor.size, offset=tensor.offset)
        packed = packed.view(rows, -1)
        if order_R is not None:  # a bias, too, has as many rows as there are numbers in the order
            packed = packed.view(len(order_R), -1)[order_R].view(rows, -1)
            self.let_go(name)
        elif tensor.offset % _ALIGNED:
            packed = packed.clone()
        weight = StoredWeight(kind, packed, (rows, columns))
        if not weight.is_finite():
            self._refuse(tensor)
        return weight

    def fill(self, name: str, out: Tensor, order_R: Tensor | None = None) -> None:
        """Write the tensor's numbers into `out`, its rows in the order `order_R`.

        Rows are reordered while they are still packed: a row is a whole number of blocks, and few bytes.
        """
        tensor = self.tensors[name]
        if out.numel() != math.prod(tensor.shape) or not out.is_contiguous():
            raise ValueError(f"{name} has shape {list(tensor.shape)}: cannot fill {list(out.shape)} with it")
        weight = self._packed(name, order_R)
        if weight is not None:
            weight.restore(out=out.view(weight.shape))
        else:
            packed = np.frombuffer(self.data, np.uint8, tensor.size, tensor.offset)
            if order_R is not None:
                packed = packed.reshape(len(order_R), -1)[order_R.numpy()].reshape(-1)
            flat, start = out.view(-1).numpy(), 0
            for numbers in self._unpack(tensor, packed):
                flat[start : start + numbers.size] = numbers
                start += numbers.size
        self.let_go(name)

    def let_go(self, name: str) -> None:
        """Tell the system that the tensor's pages are not needed: they come again when they are read."""
        tensor = self.tensors[name]
        if hasattr(mmap, "MADV_DONTNEED"):
            first = tensor.offset // mmap.PAGESIZE * mmap.PAGESIZE
            self.data.madvise(mmap.MADV_DONTNEED, first, tensor.offset + tensor.size - first)

    def _unpack(self, tensor: GGUFTensor, packed: NDArray[np.uint8]) -> Iterator[NDArray[np.float32]]:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize

        kind = GGMLQuantizationType(tensor.quantisation)
        block, block_bytes = GGML_QUANT_SIZES[kind]
        stride = max(1, _CHUNK // block) * block_bytes
        for start in range(0, packed.size, stride):
            try:
                # One long row: `dequantize` would cut many short ones into groups of sixteen.
                numbers = dequantize(packed[None, start : start + stride], kind)[0]
            except NotImplementedError:
                raise ValueError(
                    f"{self.path}: tensor {tensor.name!r} is stored as {kind.name}, which cannot be read; "
                    f"readable are {', '.join(readable_types())}"
                ) from None
            if not np.isfinite(numbers).all():
                self._refuse(tensor)
            yield numbers

    def _refuse(self, tensor: GGUFTensor) -> NoReturn:
        raise ValueError(f"{self.path}: tensor {tensor.name!r} holds NaN or infinity: a damaged file")


def readable_types() -> list[str]:
    """The names of ggml's number types that the installed `gguf` can turn into float32."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    names = []
    for kind in GGMLQuantizationType:
        try:
            dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            continue
        names.append(kind.name)
    return names


def is_gguf(path: Path) -> bool:
    """Whether the file begins as a GGUF file does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_gguf(path: Path) -> GGUFFile:
    """Read header, metadata and tensor table; the tensors themselves stay on disk until asked for."""
    with path.open("rb") as file:
        if path.stat().st_size < len(MAGIC):  # an empty file cannot be mapped
            raise ValueError(f"{path}: not a GGUF file: it has only {path.stat().st_size} bytes")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    metadata, tensors = read_table(GGUFCursor(path, data))
    return GGUFFile(path, metadata, tensors, data)
