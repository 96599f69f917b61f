"""Repetition, frequency and presence penalties: lower the scores of tokens that occurred before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unspool.decode.arguments import LARGEST_BIAS, Checked, flag, number
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Step


def tokens_so_far(hypothesis: Hypothesis, prompt: bool) -> tuple[int, ...]:
    """The tokens of a hypothesis, with those of its prompt if `prompt`."""
    return hypothesis.prompt + hypothesis.tokens if prompt else hypothesis.tokens


def occurrences(
    history: Sequence[Hypothesis], prompt: bool, scores_NV: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(row, token, count) of every token that occurs in a row; ids beyond the scores are ignored."""
    V = scores_NV.shape[1]
    counts = [
        (row, token, count)
        for row, hypothesis in enumerate(history)
        for token, count in Counter(tokens_so_far(hypothesis, prompt)).items()
        if token < V
    ]
    row_M, token_M, count_M = (
        torch.tensor(counts, dtype=torch.long, device=scores_NV.device).view(-1, 3).unbind(1)
    )
    return row_M, token_M, count_M


@dataclass(frozen=True)
class OccurrencePenalty(Checked):
    """Settings of a penalty that is subtracted from the scores of tokens that occurred."""

    penalty: float = number(
        at_least=-LARGEST_BIAS, at_most=LARGEST_BIAS, advice="Common values are 0.1 … 2; 0 is off."
    )
    prompt: bool = flag(False, advice="It is whether tokens of the prompt count.")
    """Whether tokens of the prompt count."""
    counts_each: ClassVar[bool] = True
    """Whether every occurrence is penalised."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        row_M, token_M, count_M = occurrences(history, self.prompt, scores_NV)
        lower_M = self.penalty * (count_M if self.counts_each else 1)
        return scores_NV.index_put((row_M, token_M), scores_NV[row_M, token_M] - lower_M)


@dataclass(frozen=True)
class RepetitionPenalty(Checked):
    """Repetition penalty: divide positive logits of tokens that occurred by a factor, and multiply negative
    ones.

        z′(x) = z(x) / θ  if z(x) > 0,   θ · z(x)  if z(x) ≤ 0,      for x that occurred

    Keskar, McCann, Varshney, Xiong & Socher 2019, §4.1 (θ = 1.2 there).
    papers.bib: keskar2019ctrl

    θ is `penalty`: 1 is off, below 1 rewards repetition. If `prompt`, tokens of the prompt count, as in
    Hugging Face, vLLM and llama.cpp; the source of an encoder–decoder never counts.

    z are the logits after the transforms before this one; the effect of θ depends on their constant, and so
    on the model. For a model without logits (an ensemble, a mixture of softmaxes) log p is penalised: that is
    the weaker p′(x) ∝ p(x)^θ, with little effect on tokens of probability near 1. For a contrast of models
    the score is penalised. Differs from the paper, as in other engines: it divides negative logits, too,
    which would raise them. Differs from Hugging Face in beam search, which penalises log p there.
    """

    penalty: float = number(1.2, above=0, at_most=1e9, advice="Common values are 1 … 1.5; 1 is off.")
    prompt: bool = flag(True, advice="It is whether tokens of the prompt count.")

    on_logits: ClassVar[bool] = True
    """The transform needs logits."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        peaks(scores_NV, history)
        row_M, token_M, _ = occurrences(history, self.prompt, scores_NV)
        norm_N = scores_NV.new_zeros(len(scores_NV)) if step.log_norm_N is None else step.log_norm_N
        norm_M = norm_N[row_M].to(scores_NV.dtype)
        logit_M = scores_NV[row_M, token_M] + norm_M
        new_M = torch.where(logit_M > 0, logit_M / self.penalty, logit_M * self.penalty) - norm_M
        return scores_NV.index_put((row_M, token_M), new_M)


@dataclass(frozen=True)
class FrequencyPenalty(OccurrencePenalty):
    """Frequency penalty: subtract a constant for every occurrence of a token.

        score′(x) = score(x) − α · c(x),     c(x) = occurrences of x

    OpenAI 2023 (API reference, "frequency and presence penalties").
    papers.bib: openai2023penalties

    α is `penalty`; 0 is off, a negative one rewards repetition. If `prompt`, tokens of the prompt count; by
    default they do not, as in that API and in vLLM (llama.cpp counts them). The penalty is additive, so that
    it is the same on logits and log-probabilities.
    """


@dataclass(frozen=True)
class PresencePenalty(OccurrencePenalty):
    """Presence penalty: subtract a constant from every token that occurred.

        score′(x) = score(x) − α   for x that occurred

    OpenAI 2023 (API reference, "frequency and presence penalties"). Settings as in `FrequencyPenalty`.
    papers.bib: openai2023penalties
    """

    counts_each: ClassVar[bool] = False
