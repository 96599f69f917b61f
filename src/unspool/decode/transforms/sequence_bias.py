"""Sequence bias: raise or lower token sequences at the moment when they would be completed.

    score′(x) = score(x) + Σ_s β_s   over sequences s = (…, x) such that the path ends with the others

As in Hugging Face's generate (Wolf et al. 2020), with its results.
papers.bib: wolf2020transformers

A single token is always biased; of a longer sequence, the last token is, where the others were just written
(in the prompt or after it; the source of an encoder–decoder is no part of its text). A string stands for the
tokens that the model's tokenizer writes it with (mind the space before a word). Biases
are finite; to forbid a sequence, use BadWords.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import biases, known_ids, within
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.transforms.scores import peaks
from unspool.decode.transforms.sequences import due
from unspool.decode.transforms.spelling import spelled
from unspool.protocols import Step, StepModel


@dataclass(frozen=True)
class SequenceBias:
    """Add a bias to the last token of each sequence, where the others have just been written."""

    bias: Mapping[Any, float] | Iterable[tuple[Any, float]]
    """String or sequence of token ids → what is added; kept as a sorted tuple of pairs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bias", biases("SequenceBias.bias", self.bias))

    def prepare(self, model: StepModel, job: Job) -> SequenceBias:  # noqa: ARG002
        """With token ids for every string."""
        pairs = biases("SequenceBias.bias", self.bias)
        return SequenceBias([(spelled(words, model, "sequence"), bias) for words, bias in pairs])

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        pairs = biases("SequenceBias.bias", self.bias)
        sequences = known_ids("SequenceBias.bias", [words for words, _ in pairs])
        bias = dict(zip(sequences, (each for _, each in pairs), strict=True))
        within("SequenceBias.bias", {sequence[-1] for sequence in bias}, scores_NV.shape[1])
        bias_NV = torch.zeros_like(scores_NV)
        for row, sequence in due(bias, history):
            bias_NV[row, sequence[-1]] += bias[sequence]
        return scores_NV + bias_NV
