"""Blocks of keys and values copied as far as they are filled: what rows do that part (`pool`).

A beam's rows part at almost every step. One call copies for all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unspool.kernels.compilation import Announced, version
from unspool.kernels.kernel import entry
from unspool.kernels.vectors import copy
from unspool.nn.compiled.attention import BLOCK


def compiled(version: int) -> Any:
    """The entry, kept on disk under its version."""

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


copy_blocks = Announced("copies of blocks (once, a second)", compiled(version(Path(__file__).parent)))
