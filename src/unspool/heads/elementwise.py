"""Heads with an elementwise function of the logits: sigsoftmax and logit soft-capping.

    log p(y = i | h) = f(z_i) − logsumexp_j f(z_j),   z_i = hᵀe_i + b_i

f(z) is not linear in h, so these heads do not have an output matrix or a rank limit, and basis-aware
sampling does not support them.
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
from unspool.heads.softmax import OutputMatrixConfig, Softmax, TiedSoftmax, log_softmax

ScoreFunction = Callable[[Tensor], Tensor]


class ElementwiseSoftmax(nn.Module):
    """Softmax of f(z); f is `score_function`."""

    weight = rank_limit = None

    def __init__(self, words: Softmax | TiedSoftmax, score_function: ScoreFunction) -> None:
        super().__init__()
        self.words, self.score_function = words, score_function

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V): f(z)."""
        return self.score_function(self.words.logits(hidden))

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return log_softmax(self.logits(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of the loss and of −log p; see `interfaces.LossHead`."""
        vectors = (self.words.weight, self.words.bias)
        logp = partial(_logp, self.score_function)
        return rowwise_loss(logp, hidden_MD, vectors, targets_M, weights_M, smoothing, len(self.words.weight))


def _logp(score_function: ScoreFunction, hidden: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    return log_softmax(score_function(F.linear(hidden, weight_VD, bias_V)))


class Capped(ElementwiseSoftmax):
    """Logit soft-capping: logits stay between −c and c.

        log p(y = i | h) = z_i − logsumexp_j z_j,   z_i = c · tanh(hᵀe_i / c)

    Riviere et al. 2024, §2, "logit soft-capping" (papers.bib: riviere2024gemma).
    """

    def __init__(self, words: Softmax | TiedSoftmax, cap: float) -> None:
        super().__init__(words, partial(_soft_cap, cap))
        self.cap = cap


def _soft_cap(cap: float, scores: Tensor) -> Tensor:
    return cap * torch.tanh(scores / cap)


@dataclass(frozen=True)
class CappedHeadConfig(OutputMatrixConfig):
    """A head with logit soft-capping."""

    cap: float = 30.0
    """The largest absolute logit; Gemma 2 uses 30."""

    def __post_init__(self) -> None:
        if not 0 < self.cap < math.inf:
            raise ValueError(f"cap={self.cap} must be positive and finite (Gemma 2 uses 30)")

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Capped:
        """Build the head for hidden vectors of this width."""
        return Capped(self.build_softmax(width, vocab_size, embed), self.cap)


class Sigsoftmax(ElementwiseSoftmax):
    """Sigsoftmax: every exponential is multiplied by the sigmoid of its logit.

        p(y = i | h) = exp(z_i)·σ(z_i) / Σ_j exp(z_j)·σ(z_j),   z_i = hᵀe_i + b_i
        log p = z + log σ(z) − logsumexp_j (z_j + log σ(z_j))

    Kanai et al. 2018, §3 (papers.bib: kanai2018sigsoftmax). The matrix of log-probabilities may have a rank
    above D + 1 with as many weights as softmax.
    """

    def __init__(self, words: Softmax | TiedSoftmax) -> None:
        super().__init__(words, _add_log_sigmoid)


def _add_log_sigmoid(scores: Tensor) -> Tensor:
    # In float32 or better: half precision would round away log σ(z) of a large score.
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return scores + F.logsigmoid(scores)


@dataclass(frozen=True)
class SigsoftmaxHeadConfig(OutputMatrixConfig):
    """A sigsoftmax head."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Sigsoftmax:
        """Build the head for hidden vectors of this width."""
        return Sigsoftmax(self.build_softmax(width, vocab_size, embed))
