"""Repetition penalty: make every token that occurred already less probable, by a power.

    p′(x) ∝ p(x)^θ   for x that occurred,      log p′(x) = θ · log p(x) + const

Keskar, McCann, Varshney, Xiong & Socher 2019, §4.1 (θ = 1.2 there).
papers.bib: keskar2019ctrl

θ is `penalty`: 1 changes nothing, below 1 rewards repetition. `prompt` says whether tokens of the prompt
count; by default they do, as in Hugging Face, vLLM and llama.cpp.

Differs from the paper: it divides logits by θ. Logits are known only up to a constant, and what a division
does depends on that constant (a negative logit even grows). Log-probabilities have no such freedom and are
never positive, so that the usual repair (multiply where negative, divide where positive) is the power
above. This is what Hugging Face computes on log-probabilities, as in its beam search. When it samples, it
works on raw logits, where the same θ bites differently from model to model: on a positive logit l the score
falls by l(1 − 1/θ), whatever the probability, while here a token of probability near 1 is hardly touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.transforms.arguments import flag, number
from unspool.decode.transforms.occurrences import occurrences
from unspool.decode.transforms.scores import peaks
from unspool.protocols import Path, Step


@dataclass(frozen=True)
class RepetitionPenalty:
    """Multiply the log-probability of tokens that occurred by the penalty."""

    penalty: float = 1.2
    prompt: bool = True

    def __post_init__(self) -> None:
        advice = "Common values are 1 … 1.5; 1 is off."
        number("RepetitionPenalty.penalty", self.penalty, above=0, at_most=1e9, advice=advice)
        flag("RepetitionPenalty.prompt", self.prompt, advice="It says whether tokens of the prompt count.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        row_M, token_M, _ = occurrences(history, self.prompt, scores_NV)
        return scores_NV.index_put((row_M, token_M), scores_NV[row_M, token_M] * self.penalty)
