"""Classifier-free guidance: follow a prompt more closely than the model itself would.

    log p̂(i | prompt) = log p(i | other) + γ (log p(i | prompt) − log p(i | other)),   normalised

Sanchez et al. 2023, §2 (papers.bib: sanchez2023cfg), after Ho & Salimans 2022 (papers.bib: ho2022cfg). The
other prompt is a negative one, or none: then the model reads the last token of the prompt alone, as Hugging
Face has it. γ is `weight`: 1 is the model itself, 1.5 usual, 0 the model with the other prompt.

Both prompts are read by one model, so that each step costs twice, and the longer of them limits how many
tokens may follow. A search ranks and draws by log p̂.
Differs from the paper: a log-probability is not let below −10⁴ before it is subtracted, so that a token
which the other prompt rules out has a finite score; what the prompt itself rules out stays ruled out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from unspool.decode.arguments import check_number, set_fields
from unspool.decode.combine.contrast import FLOOR
from unspool.decode.combine.lockstep import Lockstep, check_model
from unspool.decode.delegating import SameTokens
from unspool.decode.prompts import ids_of
from unspool.interfaces import Rewindable, Step, StepModel


@dataclass(frozen=True)
class Guidance(Lockstep):
    """Guidance(model, 1.5): a model that does more of what its prompt asks for."""

    model: StepModel
    weight: float = 1.5
    """How far to go from the other prompt's distribution to the prompt's, and beyond."""
    negative: str | Sequence[int] | None = None
    """The other prompt, a text or token ids (kept as a tuple); None for the last token of the prompt."""

    def __post_init__(self) -> None:
        check_model(self.model)
        check_number(self, "weight", at_least=0, advice="1 is the model itself, 1.5 usual.")
        if self.negative is not None and not isinstance(self.negative, str):
            set_fields(self, negative=ids_of(self.model, self.negative, 0))
        if self.negative is None and self.model.is_encoder_decoder:
            raise ValueError(
                "Guidance of an encoder–decoder needs a negative source: it reads no source without one"
            )
        super().__post_init__()

    def parts(self) -> tuple[StepModel, ...]:
        """The model with its prompt, then with the other one."""
        other = None if self.negative is None else ids_of(self.model, self.negative, 0)
        return self.model, Reprompted(self.model, other)

    def join(self, steps: Sequence[Step]) -> Step:
        """Beyond the prompt's; what lies behind the probabilities is the prompt's."""
        asked, other = steps
        other_NV = other.logp_NV.clamp(min=FLOOR)
        sum_NV = other_NV + self.weight * (asked.logp_NV.clamp(min=FLOOR) - other_NV)
        sum_NV = sum_NV.masked_fill(asked.logp_NV == -math.inf, -math.inf)
        return Step(
            torch.log_softmax(sum_NV, dim=-1),
            asked.hidden_ND,
            asked.attention,
            log_norm_N=sum_NV.logsumexp(dim=-1),
        )


@dataclass(frozen=True)
class Reprompted(SameTokens):
    """A model that reads something else than its prompts: the same for all, or the last token of each."""

    model: StepModel
    prompt: tuple[int, ...] | None

    @property
    def rewindable(self) -> Self | None:
        """Itself, where the model is."""
        return None if self.model.rewindable is None else self

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        """The model, the other prompt."""
        return [(self.model, self._other(prompt))]

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        """Read the other prompt as often."""
        return self.model.start([self._other(prompt) for prompt in prompts])

    def _other(self, prompt: Sequence[int]) -> Sequence[int]:
        return prompt[-1:] if self.prompt is None else self.prompt

    def step(self, state: Any, tokens_N: Tensor) -> tuple[Step, Any]:
        """As the model does."""
        return self.model.step(state, tokens_N)

    def extend(self, state: Any, tokens_NT: Tensor) -> tuple[Step, Any]:
        """As the model does."""
        return self._rewindable().extend(state, tokens_NT)

    def rewind(self, state: Any, tokens: int) -> Any:
        """As the model does."""
        return self._rewindable().rewind(state, tokens)

    def _rewindable(self) -> Rewindable:
        if self.model.rewindable is None:
            raise TypeError(
                f"{type(self.model).__name__} cannot go back over tokens: ask `rewindable` before"
            )
        return self.model.rewindable
