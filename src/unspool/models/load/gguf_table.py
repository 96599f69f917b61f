"""The table of a GGUF file: header, metadata, and where each tensor lies.

"GGUF" · version u32 · tensors u64 · pairs u64 · pairs × (key, type, value)
       · tensors × (name, n, n × u64, type u32, offset u64) · padding · data
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from unspool.models.load.gguf_cursor import GGUFCursor
from unspool.nn.stored.formats import GGML

MAGIC = b"GGUF"
VERSIONS = (2, 3)

# What the smallest member of a list takes: a count that asks for more than the rest of the file is a lie.
_SMALLEST_PAIR = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8
_MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies in the file, and how its numbers are packed."""

    name: str
    shape: tuple[int, ...]
    """As torch writes it: the last dimension runs fastest."""
    quantisation: int
    """ggml's number of the type, as in `gguf.GGMLQuantizationType`."""
    offset: int
    """From the beginning of the file."""
    size: int
    """In bytes."""


def read_table(cursor: GGUFCursor) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
    """Metadata and tensors by name."""
    tensor_count, pair_count = _header(cursor)
    metadata = _metadata(cursor, pair_count)
    return metadata, _tensors(cursor, tensor_count, metadata)


def _header(cursor: GGUFCursor) -> tuple[int, int]:
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
    cursor.need(pair_count, _SMALLEST_PAIR, f"{pair_count} metadata pairs")
    cursor.need(tensor_count, _SMALLEST_TENSOR, f"{tensor_count} tensors")
    return tensor_count, pair_count


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
    cursor.need(count, _SMALLEST_TENSOR, f"{count} tensors")
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
    _refuse_overlap(cursor, tensors)
    return tensors


def _refuse_overlap(cursor: GGUFCursor, tensors: dict[str, GGUFTensor]) -> None:
    """No byte belongs to two tensors: a table that says so is damaged, or made to mislead."""
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for before, after in pairwise(ordered):
        if before.offset + before.size > after.offset:
            cursor.fail(f"{after.name}'s data behind {before.name}'s, which ends later", after.offset)


def _block(quantisation: int) -> tuple[int, int] | None:
    """Numbers and bytes of a block of ggml's type of that number; None where nobody knows it."""
    kind = GGML.get(quantisation)
    if kind is not None:
        return kind.sizes
    from gguf.constants import GGML_QUANT_SIZES  # not before: it comes with much else

    sizes: tuple[int, int] | None = GGML_QUANT_SIZES.get(quantisation)  # IntEnums equal their numbers
    return sizes


def _tensor(cursor: GGUFCursor, number: int) -> tuple[str, tuple[int, ...], int, int, int]:
    name = cursor.string(f"the name of tensor {number}")
    dimensions = cursor.scalar("I", f"the number of {name}'s dimensions")
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        cursor.fail(f"1 to {_MOST_DIMENSIONS} dimensions for {name}, found {dimensions}")
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
