"""Penalties for repetition: of tokens that occurred, of repeated n-grams (no_repeat_ngram) and DRY."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unspool.arguments import LARGEST_BIAS, Checked, flag, integer, number, token_ids
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms.scores import ban_each, peaks
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

    Keskar, McCann, Varshney, Xiong & Socher 2019, §4.1 (θ = 1.2 there). papers.bib: keskar2019ctrl

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

    OpenAI 2023 (API reference, "frequency and presence penalties"). papers.bib: openai2023penalties

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


@dataclass(frozen=True)
class NoRepeatNgram(Checked):
    """No repeated n-grams: ban every token that would complete an n-gram for the second time.

        ban x  ⇔  (y_{t−n+1}, …, y_{t−1}, x) occurs in y_{<t}

    Paulus, Xiong & Socher 2018, §2.5 (trigrams, in beam search). papers.bib: paulus2018deep

    n = 1 lets every token occur once. If `prompt`, n-grams of the prompt count, as in Hugging Face, whose
    banned set this is. If all remaining tokens of a row are banned, see `scores.ban`.
    """

    n: int = integer(at_least=1, advice="Common values are 3 and 4.")
    prompt: bool = flag(True, advice="It is whether n-grams of the prompt count.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        peaks(scores_NV, history)
        V = scores_NV.shape[1]
        banned = [
            (row, token)
            for row, hypothesis in enumerate(history)
            for token in self._completions(tokens_so_far(hypothesis, self.prompt))
            if token < V
        ]
        return ban_each(scores_NV, step, banned)

    def _completions(self, tokens: tuple[int, ...]) -> set[int]:
        """The tokens that followed earlier occurrences of the last n − 1 tokens."""
        start = tokens[len(tokens) - self.n + 1 :] if len(tokens) >= self.n else None
        ends = range(self.n - 1, len(tokens))
        return {tokens[end] for end in ends if tokens[end - self.n + 1 : end] == start}


MAX_MATCH = 50
MAX_PENALTY = 1e9


@dataclass(frozen=True)
class DRY(Checked):
    """DRY, don't repeat yourself: penalise tokens that continue a repetition, more for a longer one.

        n(x) = length of the longest suffix of the text that earlier in the text was followed by x
        score′(x) = score(x) − λ · b^(n(x) − a)   if n(x) ≥ a

    Weidmann 2024 (papers.bib: weidmann2024dry).

    λ is `multiplier`, b is `base`, a is `allowed`. A match never contains a token of `breakers`, and breakers
    are never penalised. `last` limits the text to its last tokens (None: all of it). If `prompt`, the prompt
    is a part of the text, as in other tools. A match has at most 50 tokens and a penalty is at most 10⁹, so
    that a score never becomes −∞. Differs from the original: breakers are token ids.
    """

    multiplier: float = number(0.8, at_least=0, advice="The author recommends 0.8; 0 is off.")
    base: float = number(1.75, at_least=1, advice="The author recommends 1.75.")
    allowed: int = integer(2, at_least=1, advice="The author recommends 2.")
    breakers: tuple[int, ...] = token_ids(())
    last: int | None = integer(None, at_least=1, advice="None reads the whole text.")
    prompt: bool = flag(True, advice="It is whether the prompt counts.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        out_NV = scores_NV.clone()
        for row, hypothesis in enumerate(history):
            for token, penalty in self.penalties(hypothesis).items():
                if token < scores_NV.shape[1]:
                    out_NV[row, token] -= penalty
        return out_NV

    def penalties(self, hypothesis: Hypothesis) -> dict[int, float]:
        """Token → penalty for the next token of a hypothesis."""
        tokens = tokens_so_far(hypothesis, self.prompt)[-(self.last or 0) :]
        matches: dict[int, int] = {}
        for end, last in enumerate(tokens[:-1]):
            token = tokens[end + 1]
            if last == tokens[-1] and token not in self.breakers:
                matches[token] = max(matches.get(token, 0), self._match(tokens, end))
        return {token: self._penalty(match) for token, match in matches.items() if match >= self.allowed}

    def _penalty(self, match: int) -> float:
        # Compare logarithms first, because powers of a large base overflow.
        if math.log(self.base) * (match - self.allowed) > math.log(MAX_PENALTY):
            return MAX_PENALTY if self.multiplier > 0 else 0.0
        return min(self.multiplier * self.base ** (match - self.allowed), MAX_PENALTY)

    def _match(self, tokens: tuple[int, ...], end: int) -> int:
        """Length of the common suffix of the tokens up to `end` and of all tokens."""
        length = 0
        while length < min(MAX_MATCH, end + 1):
            token = tokens[-1 - length]
            if tokens[end - length] != token or token in self.breakers:
                break
            length += 1
        return length
