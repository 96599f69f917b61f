"""Repetition penalty: make every token that occurred already less probable, by a factor on its logit.

    z′(x) = z(x) / θ  where z(x) > 0,   θ · z(x)  where z(x) ≤ 0,      for x that occurred

Keskar, McCann, Varshney, Xiong & Socher 2019, §4.1 (θ = 1.2 there).
papers.bib: keskar2019ctrl

θ is `penalty`: 1 changes nothing, below 1 rewards repetition. `prompt` says whether tokens of the prompt
count; by default they do, as in Hugging Face, vLLM and llama.cpp. The source of an encoder–decoder is no
part of its text and never counts.

z are the logits of the model, as the rules before this one have left them. What the same θ does depends on
the constant in them, and so on the model. A model that has no logits (an ensemble, a mixture of softmaxes) is
penalised on log p: that is the weaker p′(x) ∝ p(x)^θ, which hardly touches a token of probability near 1. A
contrast of models is penalised on its score, the difference.
Differs from the paper, as all engines do: it divides negative logits, too, which would raise them.
Differs from Hugging Face: theirs is the same when it samples or decodes greedily; in its beam search it
penalises log p, where here the logits are penalised in every search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unspool.decode.arguments import flag, number
from unspool.decode.path import Path
from unspool.decode.transforms.occurrences import occurrences
from unspool.decode.transforms.scores import peaks
from unspool.protocols import Step


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divide positive logits of tokens that occurred by the penalty, and multiply negative ones."""

    penalty: float = 1.2
    prompt: bool = True

    on_logits: ClassVar[bool] = True
    """What it does depends on the constant that turns scores into logits."""

    def __post_init__(self) -> None:
        advice = "Common values are 1 … 1.5; 1 is off."
        number(self, "penalty", above=0, at_most=1e9, advice=advice)
        flag(self, "prompt", advice="It says whether tokens of the prompt count.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        row_M, token_M, _ = occurrences(history, self.prompt, scores_NV)
        norm_N = scores_NV.new_zeros(len(scores_NV)) if step.log_norm_N is None else step.log_norm_N
        norm_M = norm_N[row_M].to(scores_NV.dtype)
        logit_M = scores_NV[row_M, token_M] + norm_M
        moved_M = torch.where(logit_M > 0, logit_M / self.penalty, logit_M * self.penalty) - norm_M
        return scores_NV.index_put((row_M, token_M), moved_M)
