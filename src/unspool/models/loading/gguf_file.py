"""Read GGUF files, the format of llama.cpp: header, metadata, tensor table and memory-mapped tensors.

    "GGUF" · version u32 · tensors u64 · pairs u64 · pairs × (key, type, value)
           · tensors × (name, n, n × u64, type u32, offset u64) · padding · data

Tensors of the types in `engine.weight_formats` are used directly from the map; others are dequantised by
`gguf.quants`, block by block. The map is private, so that writing to it never reaches the file.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import GGML
from unspool.errors import escape_name
from unspool.models.loading.weight_layout import SourcePart, TensorSource

# GGUF's value types by number; a bool is one byte, strings (8) and arrays (9) have their own readers.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_MAX_ARRAY_DEPTH = 4


class GGUFCursor:
    """Reads little-endian values from the memory map, never past its end.

    Every length is checked against the rest of the file before memory is allocated for it. A truncated or
    hostile file gives a ValueError that names the file, the offset and the expected value.
    """

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at, self.end = path, data, 0, len(data)

    def fail(self, expected: str, offset: int | None = None) -> NoReturn:
        """Raise a ValueError about the value at the current byte, or at `offset`."""
        at = self.at if offset is None else offset
        place = f"{self.path}: at byte {at} of {self.end}"
        raise ValueError(f"{place}: expected {escape_name(expected)}; the file is truncated or damaged")

    def need(self, count: int, each: int, what: str) -> int:
        """The size of `count` values of at least `each` bytes; fails if the file is shorter."""
        if count * each > self.end - self.at:
            self.fail(f"{what} ({count * each} bytes or more), found {self.end - self.at} bytes")
        return count * each

    def scalar(self, code: str, what: str) -> Any:
        """One number with the given `struct` code."""
        size = self.need(1, struct.calcsize("<" + code), what)
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += size
        return value

    def string(self, what: str) -> str:
        """A string, preceded by its length."""
        length = self.scalar("Q", f"the length of {what}")
        self.need(length, 1, what)
        raw = self.data[self.at : self.at + length]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            self.fail(f"{what} in UTF-8, found byte {raw[error.start]:#04x}", self.at + error.start)
        self.at += length
        return text

    def strings(self, count: int, what: str) -> list[str]:
        """Many strings, in a tight loop: a vocabulary has about a hundred thousand."""
        self.need(count, 8, what)
        data, end, at, length_at = self.data, self.end, self.at, struct.Struct("<Q").unpack_from
        texts = []
        try:
            for _ in range(count):
                stop = at + 8 + length_at(data, at)[0]
                if stop > end:
                    break
                texts.append(data[at + 8 : stop].decode())
                at = stop
        except (struct.error, UnicodeDecodeError):
            pass
        self.at = at
        if len(texts) < count:
            # Read the invalid string again for its error message.
            self.string(f"text {len(texts)} of {count} in {what}")
        return texts

    def array(self, what: str, depth: int) -> list[Any]:
        """A list, possibly nested."""
        kind = self.scalar("I", f"the type of {what}'s members")
        count = self.scalar("Q", f"the number of {what}'s members")
        if kind == _STRING:
            return self.strings(count, what)
        if kind == _ARRAY:
            if depth == _MAX_ARRAY_DEPTH:
                self.fail(f"arrays no more than {_MAX_ARRAY_DEPTH} deep in {what}")
            self.need(count, 4 + 8, what)
            return [self.array(what, depth + 1) for _ in range(count)]
        code = "<" + self.code(kind, what)
        size = self.need(count, struct.calcsize(code), what)
        values: list[Any] = np.frombuffer(self.data, code, count, self.at).tolist()
        self.at += size
        return values

    def code(self, kind: int, what: str) -> str:
        """The `struct` code of a GGUF value type."""
        if kind not in _SCALARS:
            self.fail(f"a value type from 0 to 12 for {what}, found {kind}", self.at)
        return _SCALARS[kind]

    def value(self, key: str) -> Any:
        """A value, preceded by its type."""
        kind = self.scalar("I", f"the type of {key}")
        if kind == _STRING:
            return self.string(key)
        if kind == _ARRAY:
            return self.array(key, 1)
        value = self.scalar(self.code(kind, key), key)
        # The number that was meant: the float32 next to 1e-5 is 9.999999747378752e-06.
        return float(str(np.float32(value))) if kind == _FLOAT32 else value


MAGIC = b"GGUF"
VERSIONS = (2, 3)

# Smallest sizes of entries: a count that needs more than the rest of the file is invalid.
_MIN_PAIR_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Entry of the tensor table."""

    name: str
    shape: tuple[int, ...]
    """In torch's order: the last dimension is contiguous."""
    quantisation: int
    """ggml type number, as in `gguf.GGMLQuantizationType`."""
    offset: int
    """In bytes from the start of the file."""
    size: int
    """In bytes."""


def read_table(cursor: GGUFCursor) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
    """Metadata and tensors by name."""
    if cursor.data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{cursor.path}: not a GGUF file: it begins with {cursor.data[:4]!r}, not {MAGIC!r}")
    cursor.at = len(MAGIC)
    version = cursor.scalar("I", "the version")
    if version not in VERSIONS:
        hint = " (a big-endian file?)" if version & 0xFFFF == 0 else ""
        raise ValueError(
            f"{cursor.path}: GGUF version {version}{hint} cannot be read; "
            f"expected little-endian version {' or '.join(map(str, VERSIONS))}; convert the model again"
        )
    tensor_count = cursor.scalar("Q", "the number of tensors")
    pair_count = cursor.scalar("Q", "the number of metadata pairs")
    cursor.need(pair_count, _MIN_PAIR_BYTES, f"{pair_count} metadata pairs")
    cursor.need(tensor_count, _MIN_TENSOR_BYTES, f"{tensor_count} tensors")
    metadata = _metadata(cursor, pair_count)
    return metadata, _tensors(cursor, tensor_count, metadata)


def _metadata(cursor: GGUFCursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for number in range(count):
        start = cursor.at
        key = cursor.string(f"the key of metadata pair {number}")
        if key in metadata:
            cursor.fail(f"a new metadata key, found {key!r} again", start)
        metadata[key] = cursor.value(key)
    return metadata


def _tensors(cursor: GGUFCursor, count: int, metadata: dict[str, Any]) -> dict[str, GGUFTensor]:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"{cursor.path}: general.alignment must be a power of two, found {alignment!r}")
    entries = [(cursor.at, *_tensor(cursor, number)) for number in range(count)]
    start_of_data = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GGUFTensor] = {}
    for at, name, shape, quantisation, offset, size in entries:
        if name in tensors:
            cursor.fail(f"a new tensor name, found {name!r} again", at)
        if offset % alignment:
            cursor.fail(f"{name}'s offset to be a multiple of {alignment}, found {offset}", at)
        offset += start_of_data
        if offset + size > cursor.end:
            cursor.fail(f"{name}'s data ({size} bytes at {offset})", min(offset, cursor.end))
        tensors[name] = GGUFTensor(name, shape, quantisation, offset, size)
    for before, after in pairwise(sorted(tensors.values(), key=lambda tensor: tensor.offset)):
        if before.offset + before.size > after.offset:
            cursor.fail(f"{after.name}'s data after the end of {before.name}'s", after.offset)
    return tensors


def _block(quantisation: int) -> tuple[int, int] | None:
    """Numbers and bytes per block of a ggml type; None if it is unknown."""
    kind = GGML.get(quantisation)
    if kind is not None:
        return kind.block, kind.block_bytes
    from gguf.constants import GGML_QUANT_SIZES  # a slow import

    return GGML_QUANT_SIZES.get(quantisation)  # IntEnums equal their numbers


def _tensor(cursor: GGUFCursor, number: int) -> tuple[str, tuple[int, ...], int, int, int]:
    name = cursor.string(f"the name of tensor {number}")
    dimensions = cursor.scalar("I", f"the number of {name}'s dimensions")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        cursor.fail(f"1 to {_MAX_DIMENSIONS} dimensions for {name}, found {dimensions}")
    shape = tuple(cursor.scalar("Q", f"{name}'s shape") for _ in range(dimensions))[::-1]
    quantisation = cursor.scalar("I", f"{name}'s number type")
    offset = cursor.scalar("Q", f"{name}'s offset")
    sizes = _block(quantisation)
    if sizes is None:
        cursor.fail(f"a number type that gguf knows for {name}, found {quantisation}")
    block, block_bytes = sizes
    if 0 in shape or shape[-1] % block:
        cursor.fail(f"rows of {name} to be whole blocks of {block} numbers, found shape {list(shape)}")
    return name, shape, quantisation, offset, math.prod(shape) // block * block_bytes


# Numbers dequantised at once: enough to hide numpy's overhead, few enough that its temporary arrays stay in
# the second-level cache and on the heap (larger ones are returned to the system each time).
_NUMBERS_PER_CHUNK = 1 << 16
_ALIGNMENT = 4
"""Byte alignment of mapped numbers; files align to 32 bytes unless they set general.alignment."""


class GGUFFile(TensorSource):
    """An open GGUF file: metadata in memory, tensors on disk."""

    def __init__(
        self, path: Path, metadata: dict[str, Any], tensors: dict[str, GGUFTensor], data: mmap.mmap
    ) -> None:
        self.path, self.metadata, self.tensors, self.data = path, metadata, tensors, data
        self.label = str(path)
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}

    def stored(self, part: SourcePart) -> StoredWeight | None:
        """A view of the map, or a copy with deinterleaved rows."""
        return self._packed(part) if len(self.tensors[part.source].shape) == 2 else None

    def fill(self, part: SourcePart, out: Tensor) -> None:
        weight = self._packed(part)
        if weight is not None:
            weight.restore(out=out.view(weight.shape))
        else:
            self._dequantise(self.tensors[part.source], out)
            if part.heads:
                out.copy_(out[deinterleaved_rows(part.heads, len(out))])
        self.release(part)

    def release(self, part: SourcePart) -> None:
        tensor = self.tensors[part.source]
        if hasattr(mmap, "MADV_DONTNEED"):
            first = tensor.offset // mmap.PAGESIZE * mmap.PAGESIZE
            self.data.madvise(mmap.MADV_DONTNEED, first, tensor.offset + tensor.size - first)

    def _packed(self, part: SourcePart) -> StoredWeight | None:
        """The rows of a tensor of any dimension; None for types without a kernel.

        Rows are reordered while packed: a row is a whole number of blocks and smaller than its floats.
        """
        tensor = self.tensors[part.source]
        kind = GGML.get(tensor.quantisation)
        if kind is None:
            return None
        rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1]
        packed = torch.frombuffer(self.data, dtype=torch.uint8, count=tensor.size, offset=tensor.offset)
        packed = packed.view(rows, -1)
        if part.heads:  # one entry per row, or per number of a bias
            order_R = deinterleaved_rows(part.heads, part.shape[0])
            packed = packed.view(len(order_R), -1)[order_R].view(rows, -1)
            self.release(part)
        elif tensor.offset % _ALIGNMENT:
            packed = packed.clone()
        weight = StoredWeight(kind, packed, (rows, columns), partial(self.release, part))
        self.check_finite(tensor.name, weight.is_finite())
        return weight

    def _dequantise(self, tensor: GGUFTensor, out: Tensor) -> None:
        """Write the numbers of a type without a kernel into `out`, chunk by chunk."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize

        kind = GGMLQuantizationType(tensor.quantisation)
        block, block_bytes = GGML_QUANT_SIZES[kind]
        blocks = max(1, _NUMBERS_PER_CHUNK // block)
        packed = np.frombuffer(self.data, np.uint8, tensor.size, tensor.offset).reshape(-1, block_bytes)
        flat = out.view(-1).numpy()
        for start in range(0, len(packed), blocks):
            try:
                # One long row: `dequantize` would split short ones into groups of sixteen.
                numbers = dequantize(packed[start : start + blocks].reshape(1, -1), kind)[0]
            except NotImplementedError:
                raise ValueError(
                    f"{self.path}: tensor {tensor.name!r} is stored as {kind.name}, which the installed gguf "
                    "package cannot dequantise"
                ) from None
            self.check_finite(tensor.name, bool(np.isfinite(numbers).all()))
            flat[start * block : start * block + numbers.size] = numbers


def deinterleaved_rows(heads: int, rows: int) -> Tensor:
    """For each of our rows, the index of the stored row.

        stored row  2i + s   of a head   ←→   our row  s·I/2 + i,    s ∈ {0, 1}

    llama.cpp rotates adjacent pairs of a Llama head, (2i, 2i+1), and this package (i, i + I/2).
    """
    return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).reshape(-1)


def is_gguf(path: Path) -> bool:
    """True if the file starts with GGUF's magic bytes."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_gguf(path: Path) -> GGUFFile:
    """Read header, metadata and tensor table; tensors stay on disk until they are used."""
    with path.open("rb") as file:
        if path.stat().st_size < len(MAGIC):  # an empty file cannot be mapped
            raise ValueError(f"{path}: not a GGUF file: it has only {path.stat().st_size} bytes")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    metadata, tensors = read_table(GGUFCursor(path, data))
    return GGUFFile(path, metadata, tensors, data)
