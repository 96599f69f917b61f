"""Penalties for repetition (of tokens, of n-grams, DRY), and biases and bans of tokens and sequences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from unspool.arguments import (
    LARGEST_BIAS,
    Checked,
    biases,
    flag,
    integer,
    known_ids,
    number,
    pairs,
    phrases,
    set_fields,
    token_ids,
    within,
)
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.prompts import encode_without_bos
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.interfaces import Step, StepModel


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


@dataclass(frozen=True)
class LogitBias:
    """Logit bias: add a constant to the scores of single tokens.

        score′(x) = score(x) + β(x)

    As `logit_bias` in the OpenAI API (papers.bib: openai2023penalties).

    A bias has the same effect on logits and log-probabilities. Biases are finite: −100 almost forbids a token
    and 100 almost forces it; to forbid it, use BadWords.
    """

    bias: Mapping[int, float] | Iterable[tuple[int, float]]
    """Token id → bias; stored as a sorted tuple of pairs."""

    def __post_init__(self) -> None:
        single = [((token,), bias) for token, bias in pairs("LogitBias.bias", self.bias)]
        checked = biases("LogitBias.bias", single)
        set_fields(self, bias=tuple((int(key[0]), bias) for key, bias in checked))

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV)
        given: Any = self.bias
        tokens, values = zip(*given, strict=True)
        within("LogitBias.bias", tokens, scores_NV.shape[1])
        bias_V = torch.zeros_like(scores_NV[0])
        bias_V[list(tokens)] = bias_V.new_tensor(values)
        return scores_NV + bias_V


def due(
    sequences: Iterable[tuple[int, ...]], history: Sequence[Hypothesis]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(row, sequence) for every sequence that the next token of that row may complete, prompt included.

    s = (s₁, …, s_m) is due on a hypothesis  ⇔  the hypothesis ends with s₁ … s_{m−1}
    """
    by_length: dict[int, list[tuple[int, ...]]] = {}
    for sequence in sequences:
        by_length.setdefault(len(sequence), []).append(sequence)
    for row, hypothesis in enumerate(history):
        tokens = tokens_so_far(hypothesis, prompt=True)
        for length, group in by_length.items():
            if len(tokens) < length - 1:
                continue
            tail = tokens[len(tokens) - length + 1 :]
            for sequence in group:
                if sequence[:-1] == tail:
                    yield row, sequence


def encode_words(words: str | Sequence[int], model: StepModel, role: str) -> tuple[int, ...]:
    """Encode a string without BOS; return token ids as they are."""
    if not isinstance(words, str):
        return tuple(words)
    if model.tokenizer is None:
        raise ValueError(
            f"the {role} {words!r} needs a tokenizer, which this model does not have: give token ids"
        )
    ids = encode_without_bos(model.tokenizer, words)
    if not ids:
        raise ValueError(f"the {role} {words!r} is empty in this model's vocabulary: leave it out")
    return ids


@dataclass(frozen=True)
class SequenceBias:
    """Sequence bias: add a constant to the token that completes a sequence.

        score′(x) = score(x) + Σ_s β_s   over sequences s = (…, x) whose other tokens end the text

    As in Hugging Face's generate (Wolf et al. 2020), with its results (papers.bib: wolf2020transformers).

    A single token is always biased; of a longer sequence, the last token is biased if the text ends with the
    others (prompt included, but not the source of an encoder–decoder). The model's tokenizer encodes strings
    (mind the space before a word). Biases are finite; to forbid a sequence, use BadWords.
    """

    bias: Mapping[Any, float] | Iterable[tuple[Any, float]]
    """String or sequence of token ids → bias; stored as a sorted tuple of pairs."""

    def __post_init__(self) -> None:
        set_fields(self, bias=biases("SequenceBias.bias", self.bias))

    def bind(self, model: StepModel, job: Job) -> SequenceBias:  # noqa: ARG002
        given: Any = self.bias
        return SequenceBias([(encode_words(words, model, "sequence"), bias) for words, bias in given])

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        bias: dict[tuple[int, ...], float] = dict(self.bias)
        known_ids("SequenceBias.bias", bias)
        within("SequenceBias.bias", {sequence[-1] for sequence in bias}, scores_NV.shape[1])
        bias_NV = torch.zeros_like(scores_NV)
        for row, sequence in due(bias, history):
            bias_NV[row, sequence[-1]] += bias[sequence]
        return scores_NV + bias_NV


@dataclass(frozen=True)
class BadWords:
    """Bad words: ban the token that would complete a forbidden sequence.

        ban x  ⇔  some forbidden sequence ends with x and the hypothesis ends with its other tokens

    As in Hugging Face's generate (Wolf et al. 2020), whose banned set this is.
    papers.bib: wolf2020transformers

    A single token is always banned; of a longer sequence, the last token is banned if the text ends with the
    others (prompt included, but not the source of an encoder–decoder). The model's tokenizer encodes strings,
    with and without a space before. A word may have other encodings, such as capitalised ones: give those
    that matter. If all remaining tokens of a row are banned, see `scores.ban`.
    """

    sequences: Iterable[str | Sequence[int]]
    """Strings, or sequences of token ids."""

    def __post_init__(self) -> None:
        sequences = set(phrases("BadWords.sequences", self.sequences))
        if not sequences:
            raise ValueError("BadWords.sequences is empty: give at least one, or leave BadWords out")
        order = sorted(sequences, key=lambda one: (isinstance(one, str), one))
        set_fields(self, sequences=tuple(order))

    def bind(self, model: StepModel, job: Job) -> BadWords:  # noqa: ARG002
        """Encode the strings, with and without a space before."""
        written = (
            (one, f" {one}") if isinstance(one, str) and not one[0].isspace() else (one,)
            for one in self.sequences
        )
        return BadWords({encode_words(one, model, "bad word") for forms in written for one in forms})

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        peaks(scores_NV, history)
        sequences = known_ids("BadWords.sequences", self.sequences)
        within("BadWords.sequences", {sequence[-1] for sequence in sequences}, scores_NV.shape[1])
        banned = [(row, sequence[-1]) for row, sequence in due(sequences, history)]
        return ban_each(scores_NV, step, banned)
