"""Paged KV cache: keys and values in blocks of a few tokens, shared by rows until one of them writes.

A block holds BLOCK tokens of every layer (`attention`). Each row has a list of blocks. The rows of a beam and
the samples of one prompt share the blocks of their common prefix. A row that writes to a shared block gets a
copy first (copy-on-write; Kwon et al. 2023, §4.3–4.4, papers.bib: kwon2023efficient). Unused blocks are
reused. If there are too few, the cache doubles. If memory is exhausted, a MemoryError names the remedy and no
row has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.engine.attention_tiles import BLOCK
from unspool.engine.compile_cache import CompiledEntry
from unspool.engine.kernel import INT64_ZERO, entry
from unspool.engine.memory import empty_pooled
from unspool.engine.simd import copy_floats
from unspool.engine.weight_table import ModelShape


@partial(CompiledEntry, "copies of KV cache blocks (once, a second)")
@entry
def copy_blocks(kv: Any, size: int, copies: Any) -> None:
    """Copy a block of `size` floats for each (source, target) of `copies`."""
    for n in range(len(copies)):
        copy_floats(kv, copies[n, 0] * size, kv, copies[n, 1] * size, size)


@partial(CompiledEntry, "the assignment of KV cache blocks (once, a second)")
@entry
def assign_blocks(
    blocks: Any, users: Any, lengths: Any, counts: Any, free: Any, copies: Any, result: Any
) -> None:
    """Let row n write counts[n] tokens after its first lengths[n], into blocks that it does not share.

    The rows of a beam diverge at almost every step, so one call handles all rows; `copy_blocks` then copies.
    Rows take blocks from `free`, which changes `blocks` (NO_BLOCK where a row has none) and the reference
    counts `users`. For each shared block, (from, to) is written to `copies`. result: the number of copies,
    and how many free blocks are missing; if any are, nothing changes.
    """
    taken = INT64_ZERO
    for n in range(len(lengths)):
        end = (lengths[n] + counts[n] - 1) // BLOCK + 1 if counts[n] else INT64_ZERO
        for place in range(lengths[n] // BLOCK, end):
            block = blocks[n, place]
            if block >= 0 and users[block] == 1:
                continue
            if block >= 0:
                users[block] -= 1
            # (block, row, place) for now; the loop below replaces it.
            copies[taken, 0], copies[taken, 1], copies[taken, 2] = block, n, place
            taken += 1
    result[0], result[1] = 0, max(taken - free.size, 0)
    for i in range(taken):
        block, n, place = copies[i, 0], copies[i, 1], copies[i, 2]
        if result[1] > 0:  # too few free blocks: undo
            users[block if block >= 0 else 0] += 1 if block >= 0 else 0
            continue
        blocks[n, place], users[free[i]] = free[i], 1
        if block >= 0:
            at = result[0]
            copies[at, 0], copies[at, 1] = block, free[i]
            result[0] += 1


MIN_BLOCKS = 128
"""Initial blocks, at least. Memory that was never written to is not allocated by the system."""
MAX_INITIAL_FLOATS = 2**25
"""Floats in the initial blocks of a cache with many rows, at most."""
MAX_SPARE_FACTOR = 4
"""`compact` shrinks a cache with more than so many times the blocks in use."""
NO_BLOCK = -1


@dataclass
class PagedKVCache:
    """The blocks of N rows."""

    block_size: int
    """Floats of a block; two float16 take the place of one."""
    kv: NDArray[np.float32]
    blocks: NDArray[np.int64]
    """(N, max blocks of a row): the block numbers of each row, then NO_BLOCK."""
    lengths: NDArray[np.int64]
    """(N): tokens of each row."""
    users: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """The reference count of each block: how many rows use it."""
    _writable: int = 0
    """How many more tokens every row can write into blocks that it does not share."""

    @classmethod
    def empty(cls, shape: ModelShape, rows: int) -> PagedKVCache:
        """A cache of empty rows."""
        per_token = shape.key_heads * shape.key_width + shape.kv_heads * shape.head_width
        numbers = BLOCK * shape.layers * per_token
        kv, blocks, lengths = np.empty(0, np.float32), np.full((rows, 1), NO_BLOCK), np.zeros(rows, np.int64)
        cache = cls(numbers // 2 if shape.half_cache else numbers, kv, blocks, lengths)
        cache._grow(max(MIN_BLOCKS, min(16 * rows, MAX_INITIAL_FLOATS // cache.block_size)))
        return cache

    @property
    def rows(self) -> int:
        """N."""
        return len(self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """(N, max blocks of a row): the offset of each block in kv."""
        return self.blocks * self.block_size

    @property
    def used(self) -> int:
        """The number of blocks in use."""
        return int(np.count_nonzero(self.users))

    def bytes_held(self, rows: NDArray[np.int64]) -> int:
        """The memory of the blocks of these rows; shared blocks count once."""
        theirs = self.blocks[rows]
        return len(np.unique(theirs[theirs != NO_BLOCK])) * self.block_size * self.kv.itemsize

    def reserve(self, counts: NDArray[np.int64] | None) -> None:
        """Make the blocks for the next counts[n] tokens of row n, or one token, writable."""
        most = 1 if counts is None else int(counts.max(initial=0))
        if most <= self._writable:
            self._writable -= most
            return
        written = np.ones(self.rows, np.int64) if counts is None else counts
        ends = self.lengths + written
        self._widen((int(ends.max()) - 1) // BLOCK + 1)
        self._unshare(written, most)
        # A row that does not write now may still share its last block.
        self._writable = int((-ends % BLOCK).min()) if written.all() else 0

    def _widen(self, places: int) -> None:
        """Extend every row's list to so many blocks."""
        if places > self.blocks.shape[1]:
            wider = np.full((self.rows, max(places, 2 * self.blocks.shape[1])), NO_BLOCK)
            wider[:, : self.blocks.shape[1]] = self.blocks
            self.blocks = wider

    def _unshare(self, written: NDArray[np.int64], most: int) -> None:
        """Give row n unshared blocks for its next written[n] tokens, `most` at most."""
        copies = np.zeros((self.rows * (most // BLOCK + 2), 3), np.int64)
        result = np.zeros(2, np.int64)
        assign_blocks(self.blocks, self.users, self.lengths, written, self._free, copies, result)
        while result[1]:
            self._grow(2 * len(self.users))
            assign_blocks(self.blocks, self.users, self.lengths, written, self._free, copies, result)
        if result[0]:
            copy_blocks(self.kv, self.block_size, copies[: result[0]])

    def _block(self, number: int) -> NDArray[np.float32]:
        return self.kv[number * self.block_size : (number + 1) * self.block_size]

    @property
    def _free(self) -> NDArray[np.int64]:
        """Unused blocks."""
        return np.flatnonzero(self.users == 0)

    def _grow(self, blocks: int) -> None:
        try:
            larger = empty_pooled(blocks * self.block_size)
        except MemoryError:
            needed = blocks * self.block_size * 4 / 2**30
            raise MemoryError(
                f"the KV cache of {self.rows} sequences needs {needed:.1f} GB, more than is available: "
                "reduce batch_size, beam width or max_new_tokens"
            ) from None
        larger[: self.kv.size] = self.kv
        self.kv = larger
        users = np.zeros(blocks, np.int64)
        users[: len(self.users)] = self.users
        self.users = users

    def _count_users(self) -> None:
        self._writable = 0
        self.users = np.bincount(self.blocks[self.blocks != NO_BLOCK], minlength=len(self.users))

    def select(self, rows: NDArray[np.int64]) -> None:
        """Reorder, repeat or drop rows, without copying keys or values."""
        self.blocks, self.lengths = self.blocks[rows], self.lengths[rows]
        self._count_users()

    def rewind(self, tokens: int | NDArray[np.int64]) -> None:
        """Remove the last `tokens` tokens of every row, or tokens[n] of row n."""
        self.lengths = np.maximum(self.lengths - tokens, 0)
        needed = (self.lengths + BLOCK - 1) // BLOCK
        self.blocks[np.arange(self.blocks.shape[1]) >= needed[:, None]] = NO_BLOCK
        self._count_users()

    def compact(self) -> None:
        """Free memory if there is much more than the rows use."""
        needed = max(MIN_BLOCKS, self.used)
        if len(self.users) <= MAX_SPARE_FACTOR * needed:
            return
        no_rows = np.zeros(0, np.int64)
        smaller = replace(
            self,
            kv=np.empty(0, np.float32),
            blocks=np.full((0, 1), NO_BLOCK),
            lengths=no_rows,
            users=no_rows,
        )
        smaller._grow(needed)
        smaller.join(self)
        self.kv, self.blocks, self.users = smaller.kv, smaller.blocks, smaller.users
        self._count_users()

    def join(self, other: PagedKVCache) -> None:
        """Append the rows of another cache."""
        if other.block_size != self.block_size:
            raise ValueError("KV caches of different formats cannot be joined: use one kv_cache for both")
        theirs = np.unique(other.blocks[other.blocks != NO_BLOCK])
        while np.count_nonzero(self.users == 0) < len(theirs):
            self._grow(2 * len(self.users))
        mine = np.flatnonzero(self.users == 0)[: len(theirs)]
        for to, source in zip(mine, theirs, strict=True):
            self._block(int(to))[:] = other._block(int(source))
        renumbered = np.full(len(other.users) + 1, NO_BLOCK)  # its last entry is for NO_BLOCK, −1
        renumbered[theirs] = mine
        width = max(self.blocks.shape[1], other.blocks.shape[1])
        blocks = np.full((self.rows + other.rows, width), NO_BLOCK)
        blocks[: self.rows, : self.blocks.shape[1]] = self.blocks
        blocks[self.rows :, : other.blocks.shape[1]] = renumbered[other.blocks]
        self.blocks = blocks
        self.lengths = np.concatenate((self.lengths, other.lengths))
        self._count_users()
