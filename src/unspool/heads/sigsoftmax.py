"""Sigsoftmax: every exponential is multiplied by the sigmoid of its own score.

    p(y = i | h) = exp(z_i)·σ(z_i) / Σ_j exp(z_j)·σ(z_j),   z_i = hᵀe_i + b_i
    log p = z + log σ(z) − logsumexp_j (z_j + log σ(z_j))

Kanai et al. 2018, §3 (papers.bib: kanai2018sigsoftmax). z + log σ(z) is no linear function of h,
so that the matrix of log-probabilities may have a rank above D + 1 at no more weights than softmax: the
head has no output matrix, and basis-aware sampling refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.heads.bent_scores import BentScores
from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax


class Sigsoftmax(BentScores):
    """Softmax of z + log σ(z)."""

    def __init__(self, words: Softmax | TiedSoftmax) -> None:
        super().__init__(words, _squashed)


def _squashed(scores: Tensor) -> Tensor:
    # In single precision at least: half of it would round away what the sigmoid takes from a large score.
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return scores + F.logsigmoid(scores)


@dataclass(frozen=True)
class SigsoftmaxHeadConfig:
    """Sigsoftmax."""

    tied: bool | None = None
    """The words' vectors are the input embedding; where it is left out, as the model's `tied` says."""
    bias: bool = False
    """One number for each word, added to its score."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Sigsoftmax:
        """The head that reads hidden vectors of this width."""
        return Sigsoftmax(SoftmaxHeadConfig(self.tied, self.bias).build(width, vocab_size, embed))
