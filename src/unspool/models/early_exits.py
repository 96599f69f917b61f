"""A Transformer that also tells what its early layers would have said: the head read at several depths.

    log p_ℓ(· | y_{<t}) = head(norm(x_ℓ)),   x_ℓ = block_ℓ(… block_1(embed(y_{<t})))

nostalgebraist 2020, "logit lens" (papers.bib: nostalgebraist2020logit); used for contrast by Chuang et al.
2024, §2 (papers.bib: chuang2024dola). x_0 is the embedding, before any block.

Differs from Chuang et al.'s code: the last norm stands before the head at every depth, as the head was
trained to read it, and not at the last depth alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unspool.decode.delegating import SameTokens
from unspool.engine.compiled_state import CompiledState
from unspool.heads.softmax import predict_step
from unspool.interfaces import Step
from unspool.models.sequence_model import decoding

if TYPE_CHECKING:
    from unspool.models.transformer_lm import LMState, TransformerLM


@dataclass(frozen=True)
class Exits(SameTokens):
    """A view of a model, with its weights and its states, whose Steps carry `exits_NEV`."""

    model: TransformerLM
    layers: tuple[int, ...]
    """After how many blocks the head is read, one entry for each exit."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("there is no layer to leave at: name at least one")
        for layer in self.layers:
            if not 0 <= layer < self.model.layers:
                raise ValueError(
                    f"layer {layer} is not an early one of {self.model.layers}: choose from 0 "
                    f"(the embedding) to {self.model.layers - 1}"
                )

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LMState]:
        """Read the prompts."""
        with decoding(self.model):
            tokens_NT, state = self.model.lay_out(prompts)
        return self._said(tokens_NT, state), state

    def step(self, state: LMState, tokens_N: Tensor) -> tuple[Step, LMState]:
        """Append one token to every row."""
        return self._said(tokens_N[:, None], state), state

    def _said(self, tokens_NT: Tensor, state: LMState) -> Step:
        with decoding(self.model):
            if isinstance(state, CompiledState):
                return state.exits(tokens_NT, self.layers)
            depth_ND = [x_NTD[:, -1] for x_NTD in self.model.depths(tokens_NT, state)]
            hidden_ND = self.model.norm(depth_ND[-1])
            early_NED = torch.stack([self.model.norm(depth_ND[layer]) for layer in self.layers], dim=1)
            return replace(predict_step(self.model.head, hidden_ND), exits_NEV=self.model.head(early_NED))
