"""Classifier-free guidance: follow a prompt more closely than the model does.

    log p̂(i | prompt) = log p(i | other) + γ (log p(i | prompt) − log p(i | other)),   normalised

Sanchez et al. 2023, §2 (papers.bib: sanchez2023cfg), after Ho & Salimans 2022 (papers.bib: ho2022cfg). The
other prompt is a negative prompt; without one, the model reads only the last token of the prompt, as in
Hugging Face. γ is `weight`: 1 is the model, 1.5 is common, 0 is the model with the other prompt.

One model reads both prompts, so that each step costs twice, and the longer prompt limits the new tokens.
Differs from the paper: log-probabilities are at least −10⁴ before the subtraction, so that a token of zero
probability for the other prompt has a finite score; tokens of zero probability for the prompt stay excluded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unspool.decode.arguments import number, set_fields
from unspool.decode.combine.contrast import FLOOR
from unspool.decode.combine.lockstep import Lockstep, States, check_model
from unspool.decode.prompts import ids_of
from unspool.interfaces import Step, StepModel


@dataclass(frozen=True)
class Guidance(Lockstep):
    """Guidance(model, 1.5): a model that follows its prompt more closely."""

    model: StepModel
    weight: float = number(1.5, at_least=0, advice="1 is the model, 1.5 is common.")
    """γ, the guidance scale."""
    negative: str | Sequence[int] | None = None
    """The negative prompt, a string or token ids; None for the last token of the prompt."""

    def __post_init__(self) -> None:
        check_model(self.model)
        if self.negative is not None and not isinstance(self.negative, str):
            set_fields(self, negative=ids_of(self.model, self.negative, 0))
        if self.negative is None and self.model.is_encoder_decoder:
            raise ValueError("Guidance of an encoder–decoder needs a negative source")
        super().__post_init__()

    def parts(self) -> tuple[StepModel, ...]:
        other = None if self.negative is None else ids_of(self.model, self.negative, 0)
        return self.model, Reprompted(self.model, other)

    def join(self, steps: Sequence[Step]) -> Step:
        """The guided distribution; hidden states and attention are those of the prompt."""
        prompted, other = steps
        other_NV = other.logp_NV.clamp(min=FLOOR)
        sum_NV = other_NV + self.weight * (prompted.logp_NV.clamp(min=FLOOR) - other_NV)
        sum_NV = sum_NV.masked_fill(prompted.logp_NV == -math.inf, -math.inf)
        return Step(
            torch.log_softmax(sum_NV, dim=-1),
            prompted.hidden_ND,
            prompted.attention,
            log_norm_N=sum_NV.logsumexp(dim=-1),
        )


@dataclass(frozen=True)
class Reprompted(Lockstep):
    """A model that reads another prompt: the same for all rows, or the last token of each prompt."""

    model: StepModel
    prompt: tuple[int, ...] | None

    def parts(self) -> tuple[StepModel, ...]:
        return (self.model,)

    def join(self, steps: Sequence[Step]) -> Step:
        return steps[0]

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        return [(self.model, self._other(prompt))]

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, States]:
        return super().start([self._other(prompt) for prompt in prompts])

    def _other(self, prompt: Sequence[int]) -> Sequence[int]:
        return prompt[-1:] if self.prompt is None else self.prompt
