"""Softmax of scores that are bent, each by itself: what sigsoftmax and a soft cap have in common.

    log p(y = i | h) = f(z_i) − logsumexp_j f(z_j),   z_i = hᵀe_i + b_i

What is bent is no product of a matrix with h: such a head has no output matrix, and no limit of its rank.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from unspool.heads.rowwise import rowwise_loss
from unspool.heads.softmax import Softmax, TiedSoftmax, normalised

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
