"""Keys and values in blocks of a few tokens, which rows share until one of them writes.

A block holds BLOCK tokens of every layer, (layers, K, 2, BLOCK, I) as a rule (`attention`): strips, each of
which has so many numbers for every token. Each row has a list of blocks; the rows
of a beam and the samples of one prompt have the same ones for what they have in common. A row that is about
to write into a block that others also use is given a copy of its own (Kwon et al. 2023, §4.3–4.4,
papers.bib: kwon2023efficient). Blocks that no row uses any more are used again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.engine.attention import BLOCK
from unspool.engine.compile_cache import Announced, version
from unspool.engine.kernel import NOUGHT, entry
from unspool.engine.memory import keep, memory
from unspool.engine.simd import copy
from unspool.engine.weight_table import Shape


def compiled_copy(version: int) -> Any:
    """The entry, kept on disk under its version.

    Blocks of keys and values copied as far as they are filled: what rows do that part (`pool`).

    A beam's rows part at almost every step. One call copies for all of them.
    """

    @entry
    def copy_blocks(kv: Any, strips: Any, copies: Any) -> int:
        """For each (source, target, tokens) of `copies`: that many tokens of one block to another.

        A block has strips of BLOCK tokens each, with so many numbers a token.
        """
        block_size = BLOCK * strips.sum()
        for n in range(len(copies)):
            source, target, tokens = copies[n]
            at = 0
            for width in strips:
                copy(kv, source * block_size + at, kv, target * block_size + at, tokens * width)
                at += BLOCK * width
        return version

    return copy_blocks


copy_blocks = Announced("copies of blocks (once, a second)", compiled_copy(version(Path(__file__).parent)))


def compiled_claim(version: int) -> Any:
    """The entry, kept on disk under its version.

    Blocks of their own for rows that are about to write (`pool`): who takes which, and what is copied there.

    A row keeps a block that nobody else uses. A beam's rows part at almost every step, so that one call looks
    at all of them; the copies that are left to do are made by another (`block_copies`).
    """

    @entry
    def own_blocks(
        blocks: Any, users: Any, lengths: Any, counts: Any, free: Any, copies: Any, found: Any
    ) -> int:
        """Let row n write counts[n] tokens behind its first lengths[n].

        `blocks`, NONE (−1) where a row has none yet, and `users` change as rows take blocks of `free`;
        `copies` is given (from, to, tokens) for each block that was shared. found: how many of these there
        are, and how many free blocks there are too few. Where there are too few, nothing changes.
        """
        taken = NOUGHT
        for n in range(len(lengths)):
            end = (lengths[n] + counts[n] - 1) // BLOCK + 1 if counts[n] else NOUGHT
            for place in range(lengths[n] // BLOCK, end):
                block = blocks[n, place]
                if block >= 0 and users[block] == 1:
                    continue
                if block >= 0:
                    users[block] -= 1
                copies[taken, 0], copies[taken, 1], copies[taken, 2] = block, n, place
                taken += 1
        found[0], found[1] = 0, max(taken - free.size, 0)
        for i in range(taken):
            block, n, place = copies[i, 0], copies[i, 1], copies[i, 2]
            if found[1] > 0:
                users[block if block >= 0 else 0] += 1 if block >= 0 else 0
                continue
            blocks[n, place], users[free[i]] = free[i], 1
            if block >= 0:
                at = found[0]
                copies[at, 0], copies[at, 1], copies[at, 2] = block, free[i], lengths[n] - place * BLOCK
                found[0] += 1
        return version

    return own_blocks


own_blocks = Announced("who has which block (once, a second)", compiled_claim(version(Path(__file__).parent)))


FIRST_BLOCKS = 128
"""Blocks a pool begins with, at least. Memory that was never written to costs nothing."""
FIRST_NUMBERS = 2**25
"""Numbers in the blocks that a pool begins with because it has many rows, at most."""
ROOMY = 4
"""How many times the blocks that rows have a pool may hold when nobody writes."""
NONE = -1
ALONE = 2
"""What `sys.getrefcount` says of an attribute that nobody else has."""


@dataclass
class BlockPool:
    """Blocks, and the lists of them that N rows have."""

    strips: NDArray[np.int64]
    """Numbers of one token in each strip of a block."""
    kv: NDArray[np.float32]
    blocks: NDArray[np.int64]
    """(N, most blocks of a row): which blocks each row has, NONE behind its last."""
    lengths: NDArray[np.int64]
    """(N): tokens of each row."""
    users: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """How many rows use each block."""
    block_size: int = field(init=False)
    """Numbers in one block."""
    _ready: int = 0
    """How many tokens every row may still write into blocks that are its own."""

    def __post_init__(self) -> None:
        self.block_size = BLOCK * int(self.strips.sum())

    @classmethod
    def empty(cls, shape: Shape, rows: int) -> BlockPool:
        """Rows of no tokens."""
        values = [shape.head_width] * (shape.kv_heads // shape.key_heads)
        strips = np.array([shape.key_width, *values] * shape.key_heads * shape.layers, np.int64)
        kv, blocks, lengths = np.empty(0, np.float32), np.full((rows, 1), NONE), np.zeros(rows, np.int64)
        pool = cls(strips, kv, blocks, lengths)
        pool._grow(max(FIRST_BLOCKS, min(16 * rows, FIRST_NUMBERS // pool.block_size)))
        return pool

    @property
    def rows(self) -> int:
        """N."""
        return len(self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """(N, most blocks): where each block begins in kv."""
        return self.blocks * self.block_size

    @property
    def used(self) -> int:
        """Blocks that some row has."""
        return int(np.count_nonzero(self.users))

    def bytes_held(self, rows: NDArray[np.int64]) -> int:
        """The memory of the blocks that these rows have; those that they share are counted once."""
        theirs = self.blocks[rows]
        return len(np.unique(theirs[theirs != NONE])) * self.block_size * self.kv.itemsize

    def make_room(self, counts: NDArray[np.int64] | None) -> None:
        """Let row n write its next counts[n] tokens, or one: into blocks that it has for itself."""
        most = 1 if counts is None else int(counts.max(initial=0))
        if most <= self._ready:
            self._ready -= most
            return
        written = np.ones(self.rows, np.int64) if counts is None else counts
        ends = self.lengths + written
        self._widen((int(ends.max()) - 1) // BLOCK + 1)
        self._own(written, most)
        # A row that writes nothing now may still share its last block.
        self._ready = int((-ends % BLOCK).min()) if written.all() else 0

    def _widen(self, places: int) -> None:
        """Let every row's list have so many places."""
        if places > self.blocks.shape[1]:
            wider = np.full((self.rows, max(places, 2 * self.blocks.shape[1])), NONE)
            wider[:, : self.blocks.shape[1]] = self.blocks
            self.blocks = wider

    def _own(self, written: NDArray[np.int64], most: int) -> None:
        """Let row n write its next written[n] tokens, `most` at most, into blocks of its own."""
        copies = np.zeros((self.rows * (most // BLOCK + 2), 3), np.int64)
        found = np.zeros(2, np.int64)
        own_blocks(self.blocks, self.users, self.lengths, written, self._free, copies, found)
        while found[1]:
            self._grow(2 * len(self.users))
            own_blocks(self.blocks, self.users, self.lengths, written, self._free, copies, found)
        if found[0]:
            copy_blocks(self.kv, self.strips, copies[: found[0]])

    def _block(self, number: int) -> NDArray[np.float32]:
        return self.kv[number * self.block_size : (number + 1) * self.block_size]

    @property
    def _free(self) -> NDArray[np.int64]:
        """Blocks that no row uses."""
        return np.flatnonzero(self.users == 0)

    def _grow(self, blocks: int) -> None:
        try:
            larger = memory(blocks * self.block_size)
        except MemoryError:
            needed = blocks * self.block_size * 4 / 2**30
            raise MemoryError(
                f"the keys and values of {self.rows} rows need {needed:.1f} GB, which this machine does not "
                "give: decode fewer rows side by side, or shorter texts"
            ) from None
        larger[: self.kv.size] = self.kv
        if sys.getrefcount(self.kv) == ALONE:
            keep(self.kv)
        self.kv = larger
        users = np.zeros(larger.size // self.block_size, np.int64)
        users[: len(self.users)] = self.users
        self.users = users

    def __del__(self) -> None:
        """Its memory is for the pools to come, unless somebody else has it."""
        if sys.getrefcount(self.kv) == ALONE:
            keep(self.kv)

    def _count(self) -> None:
        self._ready = 0
        self.users = np.bincount(self.blocks[self.blocks != NONE], minlength=len(self.users))

    def select(self, rows: NDArray[np.int64]) -> None:
        """Reorder, repeat or drop rows. No key and no value is copied."""
        self.blocks, self.lengths = self.blocks[rows], self.lengths[rows]
        self._count()

    def rewind(self, tokens: int | NDArray[np.int64]) -> None:
        """Forget the last `tokens` tokens of every row, or tokens[n] of row n."""
        self.lengths = np.maximum(self.lengths - tokens, 0)
        needed = (self.lengths + BLOCK - 1) // BLOCK
        self.blocks[np.arange(self.blocks.shape[1]) >= needed[:, None]] = NONE
        self._count()

    def compact(self) -> None:
        """Let go of memory, where there is much more than rows have."""
        needed = max(FIRST_BLOCKS, self.used)
        if len(self.users) <= ROOMY * needed:
            return
        nobody, nothing = np.zeros(0, np.int64), np.empty(0, np.float32)
        smaller = replace(self, kv=nothing, blocks=np.full((0, 1), NONE), lengths=nobody, users=nobody)
        smaller._grow(needed)
        smaller.join(self)
        self.kv, self.blocks, self.users = smaller.kv, smaller.blocks, smaller.users
        self._count()

    def join(self, other: BlockPool) -> None:
        """Take over another pool's rows, behind one's own."""
        theirs = np.unique(other.blocks[other.blocks != NONE])
        while np.count_nonzero(self.users == 0) < len(theirs):
            self._grow(2 * len(self.users))
        mine = np.flatnonzero(self.users == 0)[: len(theirs)]
        for to, source in zip(mine, theirs, strict=True):
            self._block(int(to))[:] = other._block(int(source))
        renumbered = np.full(len(other.users) + 1, NONE)  # its last entry is NONE's own
        renumbered[theirs] = mine
        width = max(self.blocks.shape[1], other.blocks.shape[1])
        blocks = np.full((self.rows + other.rows, width), NONE)
        blocks[: self.rows, : self.blocks.shape[1]] = self.blocks
        blocks[self.rows :, : other.blocks.shape[1]] = renumbered[other.blocks]
        self.blocks = blocks
        self.lengths = np.concatenate((self.lengths, other.lengths))
        self._count()
