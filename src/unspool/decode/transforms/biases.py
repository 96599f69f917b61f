"""Biases of tokens and sequences: logit bias, sequence bias and bad words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import biases, known_ids, pairs, phrases, set_fields, within
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.prompts import encode_without_bos
from unspool.decode.transforms.penalties import tokens_so_far
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.interfaces import Step, StepModel


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
