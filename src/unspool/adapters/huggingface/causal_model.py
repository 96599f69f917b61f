"""A causal language model of transformers as a StepModel: any family that their `generate` serves.

Prompts of unequal lengths stand flush right in one batch; the cache grows a column a step, and a beam moves
its rows. The cache keeps every column, those outside of a sliding window, too (the mask hides them), so that
tokens can be forgotten again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from unspool.adapters.huggingface.wrapped_model import WrappedModel, flat, last
from unspool.adapters.needed_packages import TRANSFORMERS
from unspool.heads.softmax import normalised
from unspool.models.decoding_mode import decodes
from unspool.protocols import Step


@dataclass
class CausalState:
    """Their cache, and which of its columns are no padding."""

    cache: Any
    seen_NT: Tensor
    """True where a column holds a token of the row."""
    padded: bool

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> CausalState:
        """Reorder, repeat or drop rows."""
        self.cache.reorder_cache(rows_M)
        return CausalState(self.cache, self.seen_NT.index_select(0, rows_M), self.padded)


class CausalModel(WrappedModel):
    """Continues prompts."""

    def forward(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, V): log p of every next token after each prefix, in one parallel pass."""
        return normalised(self.model(input_ids=tokens_NT, use_cache=False, return_dict=True).logits)

    @property
    def prompt_reading(self) -> Self | None:
        """It can tell what its head would have read, where it shows its head."""
        return None if self.head is None else self

    @decodes
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, CausalState]:
        """Read the prompts in one pass, the shorter ones flush right."""
        tokens_NT, state = self._lay_out(prompts)
        kept = {"logits_to_keep": 1} if "logits_to_keep" in self._takes else {}
        out, hidden_NTD = self._read(tokens_NT, state, **kept)
        return last(out, hidden_NTD), state

    @decodes
    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, CausalState]:
        """`start`, and what the head would read at every place of the prompts: (N, T, D), flush right."""
        tokens_NT, state = self._lay_out(prompts)
        out, hidden_NTD = self._read(tokens_NT, state)
        assert hidden_NTD is not None
        return hidden_NTD, last(out, hidden_NTD), state

    @decodes
    def step(self, state: CausalState, tokens_N: Tensor) -> tuple[Step, CausalState]:
        """Append one token to every row."""
        state = self._grown(state, tokens_N[:, None])
        return last(*self._read(tokens_N[:, None], state)), state

    @decodes
    def extend(self, state: CausalState, tokens_NT: Tensor) -> tuple[Step, CausalState]:
        """Append T tokens to every row; the Step has T rows for each of them."""
        state = self._grown(state, tokens_NT)
        return flat(*self._read(tokens_NT, state)), state

    @torch.inference_mode()
    def rewind(self, state: CausalState, tokens: int) -> CausalState:
        """Forget the last `tokens` tokens of every row."""
        if not tokens:
            return state
        state.cache.crop(-tokens)
        return CausalState(state.cache, state.seen_NT[:, :-tokens], state.padded)

    def _lay_out(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, CausalState]:
        longest = max(map(len, prompts))
        padded = any(len(prompt) < longest for prompt in prompts)
        if padded and "attention_mask" not in self._takes:
            raise ValueError(
                f"{type(self.model).__name__} takes no attention mask, so that prompts of unequal lengths "
                "cannot be read side by side: say batch_size=1"
            )
        rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        seen = [[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts]
        state = CausalState(self._new_cache(), torch.tensor(seen, device=self.device), padded)
        return torch.tensor(rows, device=self.device), state

    def _new_cache(self) -> Any:
        """A recurrent model makes its own in its first pass."""
        return None if self._recurrent else TRANSFORMERS.imported("this model").DynamicCache()

    def _grown(self, state: CausalState, tokens_NT: Tensor) -> CausalState:
        new = torch.ones_like(tokens_NT, dtype=torch.bool)
        return CausalState(state.cache, torch.cat((state.seen_NT, new), dim=1), state.padded)

    def _read(self, tokens_NT: Tensor, state: CausalState, **more: Any) -> tuple[Any, Tensor | None]:
        attends = "past_key_values" in self._takes
        name = "past_key_values" if attends else "cache_params"
        inputs = {"input_ids": tokens_NT, name: state.cache, "use_cache": True, **more}
        if "position_ids" in self._takes:
            places_NT = (state.seen_NT.long().cumsum(-1) - 1).clamp_(min=0)
            inputs["position_ids"] = places_NT[:, -tokens_NT.shape[1] :]
        # What has no attention has taken padding out of its memory when it has read the prompts.
        if state.padded and (attends or state.cache is None):
            inputs["attention_mask"] = state.seen_NT.long()
        out, hidden_NTD = self.run(**inputs)
        state.cache = getattr(out, name)
        return out, hidden_NTD

    @decodes
    def _probe(self) -> tuple[Tensor, Tensor] | None:
        out, hidden_NTD = self.run(input_ids=torch.tensor([[0], [1]], device=self.device), use_cache=False)
        return None if hidden_NTD is None else (out.logits[:, -1], hidden_NTD[:, -1])
