"""Softmax of scores that are bent, each by itself: what sigsoftmax and a soft cap have in common.

    log p(y = i | h) = f(z_i) − logsumexp_j f(z_j),   z_i = hᵀe_i + b_i

What is bent is no product of a matrix with h: such a head has no output matrix, and no limit of its rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.heads.chunked_loss import rowwise_loss
from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax, normalised

Bend = Callable[[Tensor], Tensor]


class BentScores(nn.Module):
    """Softmax of f(z). f is `bend`."""

    weight = rank_limit = None

    def __init__(self, words: Softmax | TiedSoftmax, bend: Bend) -> None:
        super().__init__()
        self.words, self.bend = words, bend

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised: f(z)."""
        return self.bend(self.words.logits(hidden))

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return normalised(self.logits(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what is minimised and of −log p, as `protocols.LossHead` says."""
        vectors = (self.words.weight, self.words.bias)
        logp = partial(_logp, self.bend)
        return rowwise_loss(logp, hidden_MD, vectors, targets_M, weights_M, smoothing, len(self.words.weight))


def _logp(bend: Bend, hidden: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    return normalised(bend(F.linear(hidden, weight_VD, bias_V)))


# Softmax of scores that cannot grow beyond a cap.
#
#     log p(y = i | h) = z_i − logsumexp_j z_j,   z_i = c · tanh(hᵀe_i / c)
#
# Riviere et al. 2024, §2, "logit soft-capping" (papers.bib: riviere2024gemma). What is bent is no product of
# a matrix with h, so that basis-aware sampling has nothing to stand on here.


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


# Sigsoftmax: every exponential is multiplied by the sigmoid of its own score.
#
#     p(y = i | h) = exp(z_i)·σ(z_i) / Σ_j exp(z_j)·σ(z_j),   z_i = hᵀe_i + b_i
#     log p = z + log σ(z) − logsumexp_j (z_j + log σ(z_j))
#
# Kanai et al. 2018, §3 (papers.bib: kanai2018sigsoftmax). z + log σ(z) is no linear function of h,
# so that the matrix of log-probabilities may have a rank above D + 1 at no more weights than softmax: the
# head has no output matrix, and basis-aware sampling refuses it.


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
