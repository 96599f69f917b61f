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

from dataclasses import dataclass

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
