"""Rows of many askers in one compiled state: they join it, go on in it at their own pace, and leave it.

What is said of a row is the same, to the bit, whoever else is there (`nn.compiled.transformer_engine`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unspool.models.compiled_state import CompiledState
from unspool.protocols import Step


class CompiledJoining:
    """`protocols.Joining`, of the Transformers whose steps are compiled."""

    def join(self, states: Sequence[CompiledState]) -> CompiledState:
        """The rows of all states, in that of the first."""
        joined = states[0]
        for other in states[1:]:
            joined = joined.join(other)
        return joined

    @torch.inference_mode()
    def extend_rows(
        self, state: CompiledState, rows_M: Tensor, tokens_MT: Tensor
    ) -> tuple[Step, CompiledState]:
        """Append T tokens to some of the rows."""
        return state.extend_rows(rows_M, tokens_MT), state

    def rewind_rows(self, state: CompiledState, rows_M: Tensor, tokens_M: Tensor) -> CompiledState:
        """Forget the last tokens of some of the rows."""
        return state.rewind_rows(rows_M, tokens_M)
