"""Softmax of scores that cannot grow beyond a cap.

    log p(y = i | h) = z_i − logsumexp_j z_j,   z_i = c · tanh(hᵀe_i / c)

Riviere et al. 2024, §2, "logit soft-capping" (papers.bib: riviere2024gemma). What is bent is no product of a
matrix with h, so that basis-aware sampling has nothing to stand on here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from unspool.heads.bent_scores import BentScores
from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax


class Capped(BentScores):
    """Softmax of c·tanh(z/c)."""

    def __init__(self, words: Softmax | TiedSoftmax, cap: float) -> None:
        super().__init__(words, partial(_capped, cap))
        self.cap = cap


def _capped(cap: float, scores: Tensor) -> Tensor:
    return cap * torch.tanh(scores / cap)


@dataclass(frozen=True)
class CappedHeadConfig:
    """Softmax of scores between −cap and cap."""

    cap: float = 30.0
    """Gemma 2 has 30."""
    tied: bool | None = None
    """The words' vectors are the input embedding; where it is left out, as the model's `tied` says."""
    bias: bool = False
    """One number for each word, added to its score."""

    def __post_init__(self) -> None:
        if not 0 < self.cap < math.inf:
            raise ValueError(f"cap={self.cap} must be above 0, and finite: 30 is Gemma 2's")

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Capped:
        """The head that reads hidden vectors of this width."""
        return Capped(SoftmaxHeadConfig(self.tied, self.bias).build(width, vocab_size, embed), self.cap)
