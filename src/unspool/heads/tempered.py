"""Softmax with an inverse temperature β.

    log p(y = i | h) = β·hᵀe_i − logsumexp_j β·hᵀe_j,   β = 1/√D at first

With independent entries of variance 1 in h and e, hᵀe has variance D, and β·hᵀe has variance 1: the same
factor as inside attention (Vaswani et al. 2017, §3.2.1, papers.bib: vaswani2017attention). β stays as it
is, or is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax


class Tempered(nn.Module):
    """A softmax that reads β·h."""

    def __init__(self, inner: Softmax | TiedSoftmax, width: int, learnt: bool = False) -> None:
        super().__init__()
        self.inner = inner
        self.beta = nn.Parameter(torch.tensor(width**-0.5), requires_grad=learnt)

    @property
    def weight(self) -> Tensor:
        """(V, D): β·e for every word, the output matrix."""
        return self.beta * self.inner.weight

    @property
    def bias(self) -> Tensor | None:
        """(V,): the softmax's own."""
        return self.inner.bias

    @property
    def rank_limit(self) -> int:
        """As `protocols.Head` says: β changes no rank."""
        return self.inner.rank_limit

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised."""
        return self.inner.logits(self.beta * hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        logp: Tensor = self.inner(self.beta * hidden)
        return logp

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what is minimised and of −log p, as `protocols.LossHead` says."""
        return self.inner.loss(self.beta * hidden_MD, targets_M, weights_M, smoothing)


@dataclass(frozen=True)
class TemperedHeadConfig:
    """Softmax with an inverse temperature β = 1/√D; words of an untied head begin with variance 1."""

    learnt: bool = False
    """β is learnt with everything else."""
    tied: bool | None = None
    """The output matrix is the input embedding; where it is left out, as the model's `tied` says."""
    bias: bool = False
    """One number for each word, added to its score."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Tempered:
        """The head that reads hidden vectors of this width."""
        inner = SoftmaxHeadConfig(self.tied, self.bias).build(width, vocab_size, embed)
        if not self.tied:
            nn.init.normal_(inner.weight)
        return Tempered(inner, width, self.learnt)
