"""Early exits (logit lens): a Transformer that also applies its head to early layers.

    log p_ℓ(· | y_{<t}) = head(norm(x_ℓ)),   x_ℓ = block_ℓ(… block_1(embed(y_{<t})))

nostalgebraist 2020, "logit lens" (papers.bib: nostalgebraist2020logit); used for contrast by Chuang et al.
2024, §2 (papers.bib: chuang2024dola). x_0 is the embedding, before any block.

Differs from Chuang et al.'s code: the final norm is applied at every depth, as the head was trained with
it, not only at the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unspool.decode.combine.lockstep import DelegatingModel
from unspool.engine.compiled_state import CompiledState, prompt_state
from unspool.heads.softmax import predict_step
from unspool.interfaces import Step
from unspool.models.sequence_model import eval_inference

if TYPE_CHECKING:
    from unspool.models.transformer_lm import LMState, TransformerLM, TransformerState


@dataclass(frozen=True)
class Exits(DelegatingModel):
    """A model wrapper whose Steps include `exits_NEV`; it shares weights and states."""

    model: TransformerLM
    layers: tuple[int, ...]
    """The number of blocks before each exit."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers is empty: name at least one layer")
        for layer in self.layers:
            if not 0 <= layer < self.model.layers:
                raise ValueError(
                    f"layer {layer} is not an early one of {self.model.layers}: choose from 0 "
                    f"(the embedding) to {self.model.layers - 1}"
                )

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LMState]:
        with eval_inference(self.model):
            if self.model.engine == "compiled":
                state = prompt_state(self.model, len(prompts))
                return state.exits(prompts, self.layers), state
            tokens_NT, past = self.model.padded(prompts)
            return self._predict(tokens_NT, past), past

    def step(self, state: LMState, tokens_N: Tensor) -> tuple[Step, LMState]:
        with eval_inference(self.model):
            if isinstance(state, CompiledState):
                return state.exits(tokens_N[:, None].tolist(), self.layers), state
            return self._predict(tokens_N[:, None], state), state

    def _predict(self, tokens_NT: Tensor, state: TransformerState) -> Step:
        depth_ND = [x_NTD[:, -1] for x_NTD in self.model.depths(tokens_NT, state)]
        hidden_ND = self.model.norm(depth_ND[-1])
        early_NED = torch.stack([self.model.norm(depth_ND[layer]) for layer in self.layers], dim=1)
        return replace(predict_step(self.model.head, hidden_ND), exits_NEV=self.model.head(early_NED))
