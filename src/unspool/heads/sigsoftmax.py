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

from unspool.heads.rowwise import rowwise_loss
from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax, normalised


class Sigsoftmax(nn.Module):
    """Softmax of z + log σ(z)."""

    weight = rank_limit = None
    """What is bent is no product with a matrix."""

    def __init__(self, words: Softmax | TiedSoftmax) -> None:
        super().__init__()
        self.words = words

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised: z + log σ(z)."""
        return _squashed(self.words.logits(hidden))

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return normalised(self.logits(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what is minimised and of −log p, as `protocols.LossHead` says."""
        vectors = (self.words.weight, self.words.bias)
        return rowwise_loss(
            _logp, hidden_MD, vectors, targets_M, weights_M, smoothing, len(self.words.weight)
        )


def _logp(hidden: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    return normalised(_squashed(F.linear(hidden, weight_VD, bias_V)))


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
