"""Bilinear softmax head: logits hᵀWe with a matrix W between hidden and word vectors.

    log p(y = i | h) = hᵀWe_i − logsumexp_j hᵀWe_j

Folding W into every e_i does not change the probabilities: hᵀ(We_i) is a plain softmax. W allows word
vectors of another width than h, or word vectors tied to an input embedding (Gulordava et al. 2018,
papers.bib: gulordava2018represent). W is initialised to the identity.

Symbols: W `form_DE`, e `inner.weight`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.heads.softmax import OutputMatrixConfig, ProjectedSoftmax, Softmax, TiedSoftmax


class Bilinear(ProjectedSoftmax):
    """A softmax applied to hᵀW."""

    def __init__(self, inner: Softmax | TiedSoftmax, width: int) -> None:
        super().__init__(inner, width)
        self.form_DE = nn.Parameter(torch.empty(width, inner.weight.shape[1]))
        nn.init.eye_(self.form_DE)

    def project(self, hidden: Tensor) -> Tensor:
        return hidden @ self.form_DE

    @property
    def weight(self) -> Tensor:
        """(V, D): the output matrix, We for every word."""
        return self.inner.weight @ self.form_DE.t()


@dataclass(frozen=True)
class BilinearHeadConfig(OutputMatrixConfig):
    """A bilinear softmax head.

    `tied` word vectors may have any width; None means False if there is an `inner_width`.
    """

    inner_width: int | None = None
    """Width of the word vectors; None means the width of the hidden vectors."""

    def __post_init__(self) -> None:
        if self.inner_width is not None and self.inner_width < 1:
            raise ValueError(
                f"inner_width={self.inner_width} must be at least 1, or omitted for the hidden width"
            )

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Bilinear:
        inner_width = self.inner_width or (embed.embedding_dim if self.tied and embed else width)
        return Bilinear(self.build_softmax(inner_width, vocab_size, embed), width)
