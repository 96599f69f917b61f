"""Logit bias: raise or lower single tokens.

    score′(x) = score(x) + β(x)

As `logit_bias` in the OpenAI API.
papers.bib: openai2023penalties

The same on logits and on log-probabilities: a bias is additive. Biases are finite: −100 all but forbids a
token and 100 all but forces it; to forbid it, use BadWords.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import biases, pairs, within
from unspool.decode.path import Path
from unspool.decode.transforms.scores import peaks
from unspool.protocols import Step


@dataclass(frozen=True)
class LogitBias:
    """Add a bias to each of the tokens named."""

    bias: Mapping[int, float] | Iterable[tuple[int, float]]
    """Token id → what is added; kept as a sorted tuple of pairs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bias", self._pairs())

    def _pairs(self) -> tuple[tuple[int, float], ...]:
        given = biases(
            "LogitBias.bias", [((token,), bias) for token, bias in pairs("LogitBias.bias", self.bias)]
        )
        return tuple((int(key[0]), bias) for key, bias in given)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV)
        tokens, values = zip(*self._pairs(), strict=True)
        within("LogitBias.bias", tokens, scores_NV.shape[1])
        bias_V = torch.zeros_like(scores_NV[0])
        bias_V[list(tokens)] = bias_V.new_tensor(values)
        return scores_NV + bias_V
