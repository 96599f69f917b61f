"""Blocks of their own for rows that are about to write (`pool`): who takes which, and what is copied there.

A row keeps a block that nobody else uses. A beam's rows part at almost every step, so that one call looks at
all of them; the copies that are left to do are made by another (`block_copies`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unspool.kernels.compilation import Announced, version
from unspool.kernels.kernel import NOUGHT, entry
from unspool.nn.compiled.attention import BLOCK


def compiled(version: int) -> Any:
    """The entry, kept on disk under its version."""

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


own_blocks = Announced("who has which block (once, a second)", compiled(version(Path(__file__).parent)))
