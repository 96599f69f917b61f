"""Softmax over a bilinear form of the hidden vector and the words' vectors.

    log p(y = i | h) = hᵀWe_i − logsumexp_j hᵀWe_j

Folding W into every e_i leaves every probability equal: hᵀ(We_i) is a plain softmax. What W buys is words'
vectors that are not as wide as h, or that are tied to an input embedding which W turns
(Gulordava et al. 2018, papers.bib: gulordava2018represent). W begins as the identity.

Symbols: W `form_DE`, e `inner.weight`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax, rank_of_log_probabilities


class Bilinear(nn.Module):
    """A softmax that reads hᵀW."""

    def __init__(self, inner: Softmax | TiedSoftmax, width: int) -> None:
        super().__init__()
        self.inner = inner
        self.form_DE = nn.Parameter(torch.empty(width, inner.weight.shape[1]))
        nn.init.eye_(self.form_DE)

    @property
    def weight(self) -> Tensor:
        """(V, D): We for every word, the output matrix."""
        return self.inner.weight @ self.form_DE.t()

    @property
    def bias(self) -> Tensor | None:
        """(V,): the softmax's own."""
        return self.inner.bias

    @property
    def rank_limit(self) -> int:
        """As `protocols.Head` says: the product of W and e has no higher rank than either."""
        return rank_of_log_probabilities(min(self.form_DE.shape), self.bias)

    def folded(self) -> Softmax:
        """The plain softmax that says the same."""
        bias = self.inner.bias
        plain = Softmax(len(self.form_DE), len(self.inner.weight), bias is not None)
        plain.weight = nn.Parameter(self.weight.detach().clone())
        if bias is not None:
            plain.bias = nn.Parameter(bias.detach().clone())
        return plain

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised."""
        return self.inner.logits(hidden @ self.form_DE)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        logp: Tensor = self.inner(hidden @ self.form_DE)
        return logp

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what is minimised and of −log p, as `protocols.LossHead` says."""
        return self.inner.loss(hidden_MD @ self.form_DE, targets_M, weights_M, smoothing)


@dataclass(frozen=True)
class BilinearHeadConfig:
    """Softmax over hᵀWe."""

    inner_width: int | None = None
    """Width of the words' vectors: the hidden vectors' own where it is left out."""
    tied: bool | None = None
    """The words' vectors are the input embedding, whatever its width; where it is left out, as the model's
    `tied` says, if there is no inner_width."""
    bias: bool = False
    """One number for each word, added to its score."""

    def __post_init__(self) -> None:
        if self.inner_width is not None and self.inner_width < 1:
            raise ValueError(
                f"inner_width={self.inner_width} must be at least 1: leave it out for the hidden vectors' own"
            )

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Bilinear:
        """The head that reads hidden vectors of this width."""
        inner_width = self.inner_width or (embed.embedding_dim if self.tied and embed else width)
        return Bilinear(SoftmaxHeadConfig(self.tied, self.bias).build(inner_width, vocab_size, embed), width)
