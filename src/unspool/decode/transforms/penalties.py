"""Which tokens a hypothesis holds already, and how often: what the repetition penalties count.

Ids that the scores have no column for are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unspool.decode.arguments import LARGEST_BIAS, check_bool, check_number
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Step


def tokens_so_far(hypothesis: Hypothesis, prompt: bool) -> tuple[int, ...]:
    """The tokens of a hypothesis, after those of its prompt if asked for."""
    return hypothesis.prompt + hypothesis.tokens if prompt else hypothesis.tokens


def occurrences(
    history: Sequence[Hypothesis], prompt: bool, scores_NV: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(row, token, count) of every token that occurs on the row's hypothesis, each pair once."""
    V = scores_NV.shape[1]
    found = [
        (row, token, count)
        for row, hypothesis in enumerate(history)
        for token, count in Counter(tokens_so_far(hypothesis, prompt)).items()
        if token < V
    ]
    row_M, token_M, count_M = (
        torch.tensor(found, dtype=torch.long, device=scores_NV.device).view(-1, 3).unbind(1)
    )
    return row_M, token_M, count_M


@dataclass(frozen=True)
class OccurrencePenalty:
    """The settings of a penalty that is subtracted from tokens which occurred."""

    penalty: float
    prompt: bool = False
    """Whether tokens of the prompt count."""

    def __post_init__(self) -> None:
        limits = {"at_least": -LARGEST_BIAS, "at_most": LARGEST_BIAS}
        check_number(self, "penalty", **limits, advice="Common values are 0.1 … 2; 0 is off.")
        check_bool(self, "prompt", advice="It says whether tokens of the prompt count.")


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divide positive logits of tokens that occurred by the penalty, and multiply negative ones.

    Repetition penalty: make every token that occurred already less probable, by a factor on its logit.

        z′(x) = z(x) / θ  where z(x) > 0,   θ · z(x)  where z(x) ≤ 0,      for x that occurred

    Keskar, McCann, Varshney, Xiong & Socher 2019, §4.1 (θ = 1.2 there).
    papers.bib: keskar2019ctrl

    θ is `penalty`: 1 changes nothing, below 1 rewards repetition. `prompt` says whether tokens of the prompt
    count; by default they do, as in Hugging Face, vLLM and llama.cpp. The source of an encoder–decoder is no
    part of its text and never counts.

    z are the logits of the model, as the rules before this one have left them. What the same θ does depends
    on the constant in them, and so on the model. A model that has no logits (an ensemble, a mixture of
    softmaxes) is penalised on log p: that is the weaker p′(x) ∝ p(x)^θ, which hardly touches a token of
    probability near 1. A contrast of models is penalised on its score, the difference. Differs from the
    paper, as all engines do: it divides negative logits, too, which would raise them. Differs from Hugging
    Face: theirs is the same when it samples or decodes greedily; in its beam search it penalises log p, where
    here the logits are penalised in every search.
    """

    penalty: float = 1.2
    prompt: bool = True

    on_logits: ClassVar[bool] = True
    """What it does depends on the constant that turns scores into logits."""

    def __post_init__(self) -> None:
        advice = "Common values are 1 … 1.5; 1 is off."
        check_number(self, "penalty", above=0, at_most=1e9, advice=advice)
        check_bool(self, "prompt", advice="It says whether tokens of the prompt count.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        row_M, token_M, _ = occurrences(history, self.prompt, scores_NV)
        norm_N = scores_NV.new_zeros(len(scores_NV)) if step.log_norm_N is None else step.log_norm_N
        norm_M = norm_N[row_M].to(scores_NV.dtype)
        logit_M = scores_NV[row_M, token_M] + norm_M
        moved_M = torch.where(logit_M > 0, logit_M / self.penalty, logit_M * self.penalty) - norm_M
        return scores_NV.index_put((row_M, token_M), moved_M)


@dataclass(frozen=True)
class FrequencyPenalty(OccurrencePenalty):
    """Subtract the penalty times the number of occurrences.

    Frequency penalty: subtract a constant for every time that a token occurred.

        score′(x) = score(x) − α · c(x),     c(x) = how often x occurred

    OpenAI 2023 (API reference, "frequency and presence penalties").
    papers.bib: openai2023penalties

    α is `penalty`; 0 changes nothing, a negative one rewards repetition. `prompt` says whether tokens of the
    prompt count; by default they do not, as in that API and in vLLM (llama.cpp counts them).
    The same on logits and on log-probabilities: the penalty is additive.
    """

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        row_M, token_M, count_M = occurrences(history, self.prompt, scores_NV)
        return scores_NV.index_put((row_M, token_M), scores_NV[row_M, token_M] - self.penalty * count_M)


@dataclass(frozen=True)
class PresencePenalty(OccurrencePenalty):
    """Subtract the penalty from tokens that occurred.

    Presence penalty: subtract a constant from every token that occurred already.

        score′(x) = score(x) − α   for x that occurred

    OpenAI 2023 (API reference, "frequency and presence penalties").
    papers.bib: openai2023penalties

    α is `penalty`; 0 changes nothing, a negative one rewards repetition. `prompt` says whether tokens of the
    prompt count; by default they do not, as in that API and in vLLM (llama.cpp counts them).
    The same on logits and on log-probabilities: the penalty is additive.
    """

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        row_M, token_M, _ = occurrences(history, self.prompt, scores_NV)
        return scores_NV.index_put((row_M, token_M), scores_NV[row_M, token_M] - self.penalty)
