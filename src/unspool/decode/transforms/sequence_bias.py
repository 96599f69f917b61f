"""Sequence bias: raise or lower token sequences at the moment when they would be completed.

    score′(x) = score(x) + Σ_s β_s   over sequences s = (…, x) such that the path ends with the others

As in Hugging Face's generate (Wolf et al. 2020), with its results.
papers.bib: wolf2020transformers

A single token is always biased; of a longer sequence, the last token is, where the others were just written
(in the prompt or after it). Biases are finite; to forbid a sequence, use BadWords.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.transforms.arguments import biases, within
from unspool.decode.transforms.scores import peaks
from unspool.decode.transforms.sequences import due
from unspool.protocols import Path, Step


@dataclass(frozen=True)
class SequenceBias:
    """Add a bias to the last token of each sequence, where the others have just been written."""

    bias: Mapping[Sequence[int], float] | Iterable[tuple[Sequence[int], float]]
    """Sequence of token ids → what is added; kept as a sorted tuple of pairs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bias", biases("SequenceBias.bias", self.bias))

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        bias = dict(biases("SequenceBias.bias", self.bias))
        within("SequenceBias.bias", {sequence[-1] for sequence in bias}, scores_NV.shape[1])
        bias_NV = torch.zeros_like(scores_NV)
        for row, sequence in due(bias, history):
            bias_NV[row, sequence[-1]] += bias[sequence]
        return scores_NV + bias_NV
