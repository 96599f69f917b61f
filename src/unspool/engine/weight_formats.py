"""Formats of stored weights: float32, float16, bfloat16, INT8, and ggml's quantised blocks.

    name     numbers   bytes   a block                                                     w
    F32            1       4   w, float32                                                  w
    F16            1       2   w, float16                                                  w
    BF16           1       2   w, the upper half of a float32                              w
    INT8          64      68   d float32 · 64 × q, a byte from 1 to 255                    d·(q − 128)
    Q8_0          32      34   d float16 · 32 × q int8                                     d·q
    Q4_0          32      18   d float16 · 16 bytes of q                                   d·(q − 8)
    Q4_1          32      20   d, m float16 · 16 bytes of q                                d·q + m
    Q4_K         256     144   d, dmin float16 · 12 bytes of s, m · 128 of q               (d·s)·q − dmin·m
    Q5_K         256     176   the same · 32 bytes of q's fifth bits before the 128        (d·s)·q − dmin·m
    Q6_K         256     210   128 and 64 bytes of q · 16 × s int8 · d float16             (d·s)·(q − 32)

INT8 is our format. It pads the last block of a row with zeros and interleaves 16 rows, as products read them:
for each block, the d of each row, then four q of each row, the next four of each row … The last set of rows
is padded, too. The other formats are ggml's, whose rows are whole blocks; `interleave` arranges the bytes of
16 rows in the same way for products (`interleaved_formats`). All data is little-endian. Every
operation of unpacking is rounded to float32, like ggml's reference, so that the same bytes are the same
numbers everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SIDE = 16
"""Interleaved rows."""
Unpack = Callable[[Tensor, Tensor], Any]


# Unpacking with torch: each function writes the numbers of n blocks (n, bytes) to `out` (n, numbers). For
# interleaved rows it takes whole sets: (n, bytes) to (n · rows, numbers).


def _float16_field(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte `at` of every block: (n, 1)."""
    return blocks[:, at : at + 2].view(torch.float16).float()


def _cast(dtype: torch.dtype) -> Unpack:
    return lambda blocks, out: out.copy_(blocks.view(dtype))


def _int8(sets: Tensor, out: Tensor) -> None:
    blocks = sets.view(len(sets), -1, 16 * 68)
    numbers = out.view(len(sets), 16, -1, 16, 4)  # 16 rows, blocks of 16 · 4 numbers
    numbers.copy_(blocks[..., 64:].view(len(sets), -1, 16, 16, 4).permute(0, 3, 1, 2, 4))
    scales = blocks[..., :64].view(torch.float32).transpose(1, 2)
    numbers.sub_(128).mul_(scales[..., None, None])


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8))
    out.mul_(_float16_field(blocks, 0))


def _nibbles(q: Tensor, out: Tensor) -> None:
    """(…, k) bytes → (…, 2, k): the lower nibbles of k bytes, then the upper ones."""
    out.select(-2, 0).copy_(q & 15)
    out.select(-2, 1).copy_(q >> 4)


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 2:], out.view(-1, 2, 16))
    out.sub_(8).mul_(_float16_field(blocks, 0))


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 4:], out.view(-1, 2, 16))
    out.mul_(_float16_field(blocks, 0)).add_(_float16_field(blocks, 2))


def _five_bits(blocks: Tensor, out: Tensor) -> None:
    """The codes of Q5_0 and Q5_1: the last 16 bytes, and four bytes of fifth bits before them."""
    _nibbles(blocks[:, -16:], out.view(-1, 2, 16))
    fifth = (blocks[:, -20:-16, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    out.add_(fifth.flatten(1) << 4)


def _q5_0(blocks: Tensor, out: Tensor) -> None:
    _five_bits(blocks, out)
    out.sub_(16).mul_(_float16_field(blocks, 0))


def _q5_1(blocks: Tensor, out: Tensor) -> None:
    _five_bits(blocks, out)
    out.mul_(_float16_field(blocks, 0)).add_(_float16_field(blocks, 2))


def _scale_k_quants(blocks: Tensor, out: Tensor) -> None:
    """Apply the scales s and m of Q4_K and Q5_K, six bits each, to eight groups of 32 numbers.

    Four of each are the lower bits of bytes 0–3 and 4–7. The lower bits of the other four are the nibbles of
    bytes 8–11, their two upper bits those of bytes 0–7.
    """
    first, second, third = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    s = torch.cat([first & 63, (third & 15) | ((first >> 2) & 48)], dim=1)
    m = torch.cat([second & 63, (third >> 4) | ((second >> 2) & 48)], dim=1)
    groups = out.view(-1, 8, 32)
    groups.mul_((_float16_field(blocks, 0) * s)[:, :, None])
    groups.sub_((_float16_field(blocks, 2) * m)[:, :, None])


def _q4_k(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 16:].view(-1, 4, 32), out.view(-1, 4, 2, 32))
    _scale_k_quants(blocks, out)


def _q5_k(blocks: Tensor, out: Tensor) -> None:
    groups, low = out.view(-1, 8, 32), blocks[:, 48:].view(-1, 4, 32)
    high = blocks[:, 16:48]
    for group in range(8):
        four = (low[:, group // 2] >> 4) if group % 2 else (low[:, group // 2] & 15)
        groups[:, group].copy_(four | (((high >> group) & 1) << 4))
    _scale_k_quants(blocks, out)


def _q6_k(blocks: Tensor, out: Tensor) -> None:
    groups = out.view(-1, 2, 4, 32)
    low, high = blocks[:, :128].view(-1, 2, 2, 32), blocks[:, 128:192].view(-1, 2, 32)
    for group in range(4):
        four = (low[:, :, group % 2] >> 4) if group > 1 else (low[:, :, group] & 15)
        groups[:, :, group].copy_(four | (((high >> (2 * group)) & 3) << 4))
    scale = _float16_field(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    out.sub_(32).view(-1, 16, 16).mul_(scale[:, :, None])


@dataclass(frozen=True)
class WeightFormat:
    """The blocks of a format."""

    number: int
    """Its code in the weight table."""
    name: str
    block: int
    """Numbers per block."""
    block_bytes: int
    unpack: Unpack
    scales: tuple[int, ...]
    """The offsets of floats in a block. If they are finite, all numbers of the block are."""
    scale_dtype: torch.dtype = torch.float16
    side: int = 1
    """Interleaved rows."""
    fields: tuple[tuple[int, int, int], ...] = ()
    """(offset, bytes, bytes at once) of the fields of a block that are interleaved for products."""

    def __reduce__(self) -> str:
        return self.name  # pickled as a global of this module

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row with this many columns."""
        return -(-columns // self.block) * self.block_bytes

    def packed_shape(self, rows: int, columns: int) -> tuple[int, int]:
        """The shape of a packed matrix: rows, or sets of interleaved rows, and the bytes of each."""
        return -(-rows // self.side), self.side * self.row_bytes(columns)


F32 = WeightFormat(0, "F32", 1, 4, _cast(torch.float32), (0,), torch.float32)
F16 = WeightFormat(1, "F16", 1, 2, _cast(torch.float16), (0,))
BF16 = WeightFormat(2, "BF16", 1, 2, _cast(torch.bfloat16), (0,), torch.bfloat16)
INT8 = WeightFormat(3, "INT8", 64, 68, _int8, tuple(range(0, 64, 4)), torch.float32, side=SIDE)
Q8_0 = WeightFormat(4, "Q8_0", 32, 34, _q8_0, (0,), fields=((0, 2, 2), (2, 32, 4)))
Q4_0 = WeightFormat(5, "Q4_0", 32, 18, _q4_0, (0,), fields=((0, 2, 2), (2, 16, 4)))
Q4_1 = WeightFormat(6, "Q4_1", 32, 20, _q4_1, (0, 2), fields=((0, 4, 2), (4, 16, 4)))
Q4_K = WeightFormat(7, "Q4_K", 256, 144, _q4_k, (0, 2), fields=((0, 4, 2), (4, 12, 1), (16, 128, 4)))
Q5_K = WeightFormat(8, "Q5_K", 256, 176, _q5_k, (0, 2), fields=((0, 4, 2), (4, 12, 1), (16, 160, 4)))
Q6_K = WeightFormat(9, "Q6_K", 256, 210, _q6_k, (208,), fields=((0, 192, 4), (192, 16, 1), (208, 2, 2)))
Q5_0 = WeightFormat(10, "Q5_0", 32, 22, _q5_0, (0,), fields=((0, 2, 2), (2, 20, 4)))
Q5_1 = WeightFormat(11, "Q5_1", 32, 24, _q5_1, (0, 2), fields=((0, 4, 2), (4, 20, 4)))

FORMATS = (F32, F16, BF16, INT8, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q5_0, Q5_1)
"""In the order of their codes."""
FLOAT32, FIRST_INTERLEAVED = F32.number, INT8.number
"""Codes that kernels compare with: from INT8 on, rows are interleaved for products."""
GGML = {0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 6: Q5_0, 7: Q5_1, 8: Q8_0, 12: Q4_K, 13: Q5_K, 14: Q6_K, 30: BF16}
"""ggml's type number → format. Other ggml types are converted to INT8."""


def all_finite(numbers: Tensor) -> bool:
    """True if a tensor that is not empty contains neither NaN nor infinity; one pass without extra memory."""
    low, high = torch.aminmax(numbers)  # either is NaN if any number is
    return bool(low.isfinite() and high.isfinite())


def interleave(kind: WeightFormat, packed: Tensor, out: Tensor) -> None:
    """Arrange the bytes of ggml's blocks (rows, bytes) as sets of interleaved rows: (sets, bytes).

    Rows and blocks that fill up the last set or group are 0. The codes of Q8_0 become bytes from 0 to 255.
    The fifth bits of Q5_0 and Q5_1 are transposed: bit k of byte j is that of number 4k + j.
    """
    if kind in (Q5_0, Q5_1):
        packed = packed.clone()
        bytes_ = packed.view(len(packed), -1, kind.block_bytes)[..., -20:-16]
        bits = (bytes_[..., None] >> torch.arange(8, dtype=torch.uint8)) & 1
        bits = bits.view(*bytes_.shape[:2], 8, 4).transpose(2, 3)
        bytes_.copy_((bits << torch.arange(8, dtype=torch.uint8)).sum(-1))
    rows, sets = len(packed), out.view(len(out), -1, SIDE * kind.block_bytes)
    blocks, whole = packed.shape[1] // kind.block_bytes, rows // SIDE
    if rows % SIDE or blocks < sets.shape[1]:
        sets.zero_()
    for first, count, height in ((0, whole, SIDE), (whole * SIDE, 1, rows % SIDE)):
        if count == 0 or height == 0:
            continue
        source = packed[first : first + count * height].view(count, height, blocks, kind.block_bytes)
        target = sets[first // SIDE : first // SIDE + count, :blocks]
        for at, size, together in kind.fields:
            field = source[..., at : at + size].unflatten(-1, (-1, together)).permute(0, 2, 3, 1, 4)  # type: ignore[no-untyped-call]
            part = target[..., SIDE * at : SIDE * (at + size)].unflatten(-1, (-1, SIDE, together))  # type: ignore[no-untyped-call]
            part[:, :, :, :height].copy_(field)
    if kind == Q8_0:
        sets[..., 2 * SIDE :].bitwise_xor_(128)
