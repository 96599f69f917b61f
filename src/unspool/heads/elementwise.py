"""Heads with an elementwise function of the logits: sigsoftmax and logit soft-capping.

    log p(y = i | h) = f(z_i) − logsumexp_j f(z_j),   z_i = hᵀe_i + b_i

f(z) is not linear in h, so these heads do not have an output matrix or a rank limit, and basis-aware
sampling does not support them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.heads.softmax import OutputMatrixConfig, RowwiseHead, Softmax, TiedSoftmax, log_softmax


class ElementwiseSoftmax(RowwiseHead):
    """Base class: softmax of f(z)."""

    def function(self, scores: Tensor) -> Tensor:
        """f(z)."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        return self.function(self.words.logits(hidden))

    def logp(self, hidden: Tensor, weight_VD: Tensor, bias_V: Tensor | None = None) -> Tensor:
        return log_softmax(self.function(F.linear(hidden, weight_VD, bias_V)))


class Capped(ElementwiseSoftmax):
    """Logit soft-capping: logits stay between −c and c.

        log p(y = i | h) = z_i − logsumexp_j z_j,   z_i = c · tanh(hᵀe_i / c)

    Riviere et al. 2024, §2, "logit soft-capping" (papers.bib: riviere2024gemma).
    """

    def __init__(self, words: Softmax | TiedSoftmax, cap: float) -> None:
        super().__init__(words)
        self.cap = cap

    def function(self, scores: Tensor) -> Tensor:
        return self.cap * torch.tanh(scores / self.cap)


@dataclass(frozen=True)
class CappedHeadConfig(OutputMatrixConfig):
    """A head with logit soft-capping."""

    cap: float = 30.0
    """The largest absolute logit; Gemma 2 uses 30."""

    def __post_init__(self) -> None:
        if not 0 < self.cap < math.inf:
            raise ValueError(f"cap={self.cap} must be positive and finite (Gemma 2 uses 30)")

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Capped:
        return Capped(self.build_softmax(width, vocab_size, embed), self.cap)


class Sigsoftmax(ElementwiseSoftmax):
    """Sigsoftmax: every exponential is multiplied by the sigmoid of its logit.

        p(y = i | h) = exp(z_i)·σ(z_i) / Σ_j exp(z_j)·σ(z_j),   z_i = hᵀe_i + b_i
        log p = z + log σ(z) − logsumexp_j (z_j + log σ(z_j))

    Kanai et al. 2018, §3 (papers.bib: kanai2018sigsoftmax). The matrix of log-probabilities may have a rank
    above D + 1 with as many weights as softmax.
    """

    def function(self, scores: Tensor) -> Tensor:
        # In float32 or better: half precision would round away log σ(z) of a large score.
        scores = scores if scores.dtype == torch.float64 else scores.float()
        return scores + F.logsigmoid(scores)


@dataclass(frozen=True)
class SigsoftmaxHeadConfig(OutputMatrixConfig):
    """A sigsoftmax head."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Sigsoftmax:
        return Sigsoftmax(self.build_softmax(width, vocab_size, embed))
