"""Rows of a compiled state that begin as parts of others: their keys and values are shared, not read again.

What is said of a row is the same, to the bit, however its text was cut (`nn.compiled.transformer_engine`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unspool.models.compiled_state import CompiledState
from unspool.protocols import Step


class CompiledForking:
    """`protocols.Forking`, of the language models whose steps are compiled."""

    def fork_rows(self, state: CompiledState, rows_K: Tensor, lengths_K: Tensor) -> CompiledState:
        """New rows behind all others, each the beginning of one that is there."""
        return state.fork_rows(rows_K, lengths_K)

    @torch.inference_mode()
    def read_rows(
        self, state: CompiledState, rows_M: Tensor, texts: Sequence[Sequence[int]]
    ) -> tuple[Step, CompiledState]:
        """Append texts of any lengths to some rows; what is said behind the last token of each."""
        return state.read_rows(rows_M, texts), state

    def bytes_held(self, state: CompiledState, rows_M: Tensor) -> int:
        """The memory of all blocks that these rows have."""
        return state.pool.bytes_held(rows_M.numpy())

    def compact(self, state: CompiledState) -> CompiledState:
        """The same rows in a smaller pool, where theirs is mostly empty."""
        state.pool.compact()
        return state
