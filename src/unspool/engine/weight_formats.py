"""The formats that a row of weights may be stored in: blocks of numbers with scales of their own.

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

INT8 is ours. A row's last block is filled up with zeros, and 16 rows lie side by side, as products read them:
block by block, the d of each, then four q of each, the next four of each … The last rows are filled up, too.
The others but F32 are ggml's, whose rows are whole blocks. All is little-endian, and every operation is
rounded to float32: `unpacking` says what a number is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# What compiled kernels know the formats by.
FLOAT32, NUMBER_INT8, NUMBER_F16, NUMBER_BF16, NUMBER_Q8_0 = 0, 1, 2, 3, 4
NUMBER_Q4_0, NUMBER_Q4_1, NUMBER_Q4_K, NUMBER_Q5_K, NUMBER_Q6_K = 5, 6, 7, 8, 9


@dataclass(frozen=True)
class Format:
    """How many numbers a block holds, and in how many bytes."""

    name: str
    number: int
    """As compiled kernels call it."""
    block: int
    """Numbers of a block."""
    block_bytes: int
    side: int = 1
    """Rows that lie side by side."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers and bytes of a block."""
        return self.block, self.block_bytes

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of so many numbers."""
        return -(-columns // self.block) * self.block_bytes

    def packed_shape(self, rows: int, columns: int) -> tuple[int, int]:
        """How many rows, or sets of rows side by side, a matrix is packed into, and the bytes of each."""
        return -(-rows // self.side), self.side * self.row_bytes(columns)


F32 = Format("F32", FLOAT32, 1, 4)
INT8 = Format("INT8", NUMBER_INT8, 64, 68, side=16)
F16 = Format("F16", NUMBER_F16, 1, 2)
BF16 = Format("BF16", NUMBER_BF16, 1, 2)
Q8_0 = Format("Q8_0", NUMBER_Q8_0, 32, 34)
Q4_0 = Format("Q4_0", NUMBER_Q4_0, 32, 18)
Q4_1 = Format("Q4_1", NUMBER_Q4_1, 32, 20)
Q4_K = Format("Q4_K", NUMBER_Q4_K, 256, 144)
Q5_K = Format("Q5_K", NUMBER_Q5_K, 256, 176)
Q6_K = Format("Q6_K", NUMBER_Q6_K, 256, 210)

FORMATS = (F32, INT8, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K)
"""In the order of their numbers."""

GGML = {0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 8: Q8_0, 12: Q4_K, 13: Q5_K, 14: Q6_K, 30: BF16}
"""ggml's number of a type → the format. Its other types are restored and stored as INT8."""


# The numbers in packed blocks, as float32.
#
# Each function writes the numbers of n blocks (n, bytes) to `out` (n, numbers); what they are is told in
# `formats`. Where rows lie side by side, it is given n sets of them, whole: (n, bytes) to (n · rows,
# numbers). Every product and every sum is rounded by itself, as ggml's own reference does it, so that the
# same bytes are the same numbers everywhere.


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 that begins at byte `at` of every block: (n, 1)."""
    return blocks[:, at : at + 2].view(torch.float16).float()


def _f32(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.float32))


def _f16(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.float16))


def _bf16(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.bfloat16))


def _int8(sets: Tensor, out: Tensor) -> None:
    side, four = INT8.side, INT8.block // 4
    blocks = sets.view(len(sets), -1, side * INT8.block_bytes)
    numbers = out.view(len(sets), side, -1, four, 4)
    numbers.copy_(blocks[..., 4 * side :].view(len(sets), -1, four, side, 4).permute(0, 3, 1, 2, 4))
    scales = blocks[..., : 4 * side].view(torch.float32).transpose(1, 2)
    numbers.sub_(128).mul_(scales[..., None, None])


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8))
    out.mul_(_half(blocks, 0))


def _nibbles(q: Tensor, out: Tensor) -> None:
    """(…, k) bytes → (…, 2, k): the lower halves of k bytes stand before their upper halves."""
    out.select(-2, 0).copy_(q & 15)
    out.select(-2, 1).copy_(q >> 4)


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 2:], out.view(-1, 2, 16))
    out.sub_(8).mul_(_half(blocks, 0))


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 4:], out.view(-1, 2, 16))
    out.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _scaled(blocks: Tensor, out: Tensor) -> None:
    """Q4_K's and Q5_K's scales s and m, of six bits each, for eight groups of 32 numbers.

    Four of each are the lower bits of bytes 0–3 and 4–7; the lower bits of the other four are the halves of
    bytes 8–11, and their two upper bits those of bytes 0–7.
    """
    first, second, third = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    s = torch.cat([first & 63, (third & 15) | ((first >> 2) & 48)], dim=1)
    m = torch.cat([second & 63, (third >> 4) | ((second >> 2) & 48)], dim=1)
    groups = out.view(-1, 8, 32)
    groups.mul_((_half(blocks, 0) * s)[:, :, None])
    groups.sub_((_half(blocks, 2) * m)[:, :, None])


def _q4_k(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 16:].view(-1, 4, 32), out.view(-1, 4, 2, 32))
    _scaled(blocks, out)


def _q5_k(blocks: Tensor, out: Tensor) -> None:
    groups, low = out.view(-1, 8, 32), blocks[:, 48:].view(-1, 4, 32)
    high = blocks[:, 16:48]
    for group in range(8):
        four = (low[:, group // 2] >> 4) if group % 2 else (low[:, group // 2] & 15)
        groups[:, group].copy_(four | (((high >> group) & 1) << 4))
    _scaled(blocks, out)


def _q6_k(blocks: Tensor, out: Tensor) -> None:
    groups = out.view(-1, 2, 4, 32)
    low, high = blocks[:, :128].view(-1, 2, 2, 32), blocks[:, 128:192].view(-1, 2, 32)
    for group in range(4):
        four = (low[:, :, group % 2] >> 4) if group > 1 else (low[:, :, group] & 15)
        groups[:, :, group].copy_(four | (((high >> (2 * group)) & 3) << 4))
    scale = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    out.sub_(32).view(-1, 16, 16).mul_(scale[:, :, None])


FLOATS: dict[Format, tuple[tuple[int, torch.dtype], ...]] = {
    F32: ((0, torch.float32),),
    INT8: tuple((4 * row, torch.float32) for row in range(INT8.side)),
    F16: ((0, torch.float16),),
    BF16: ((0, torch.bfloat16),),
    Q8_0: ((0, torch.float16),),
    Q4_0: ((0, torch.float16),),
    Q4_1: ((0, torch.float16), (2, torch.float16)),
    Q4_K: ((0, torch.float16), (2, torch.float16)),
    Q5_K: ((0, torch.float16), (2, torch.float16)),
    Q6_K: ((208, torch.float16),),
}
"""Format → where in a block floating-point numbers begin: where they are finite, all its numbers are."""

UNPACK: dict[Format, Callable[[Tensor, Tensor], None]] = {
    F32: _f32,
    INT8: _int8,
    F16: _f16,
    BF16: _bf16,
    Q8_0: _q8_0,
    Q4_0: _q4_0,
    Q4_1: _q4_1,
    Q4_K: _q4_k,
    Q5_K: _q5_k,
    Q6_K: _q6_k,
}
"""Format → what writes the numbers of blocks (n, bytes) to (n, numbers), or those of sets of rows."""


# Whether all numbers of a tensor are finite, by one pass that needs no memory of its own.


def all_finite(numbers: Tensor) -> bool:
    """Neither NaN nor infinity is among them. There must be one number at least."""
    low, high = torch.aminmax(numbers)  # either is NaN if any number is
    return bool(low.isfinite() and high.isfinite())
