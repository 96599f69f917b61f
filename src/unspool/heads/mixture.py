"""Mixture of softmaxes: K softmaxes over the same words, each with a separate hidden vector.

    p(y = i | h) = Σ_k π_k · softmax_i(h_kᵀe_i),   π = softmax(Ph),   h_k = tanh(W_k h)

Yang et al. 2018, §2.4 (papers.bib: yang2018breaking). The logarithm of a sum of softmaxes is not linear in
h, so the matrix of log-probabilities may have any rank. There is no output matrix, and basis-aware sampling
does not support this head.

If h is already the output of a tanh, a second tanh may slow learning a lot (docs/results/heads.md): `bent =
False` omits it, h_k = W_k h. The rank stays unbounded.

Symbols: P `prior_KD`, stacked W_1 … W_K `latent_KDD`, e `words.weight`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.heads.softmax import OutputMatrixConfig, RowwiseHead, Softmax, TiedSoftmax, log_softmax


class Mixture(RowwiseHead):
    """K softmaxes over one set of word vectors, weighted by the context."""

    logits = None
    """A sum of softmaxes does not have logits."""

    def __init__(self, words: Softmax | TiedSoftmax, width: int, experts: int, bent: bool = True) -> None:
        super().__init__(words)
        self.bent = bent
        self.prior_KD = nn.Parameter(torch.empty(experts, width))
        self.latent_KDD = nn.Parameter(torch.empty(experts, width, width))
        for matrix in (self.prior_KD, self.latent_KDD):
            nn.init.normal_(matrix, std=width**-0.5)

    @property
    def matrices(self) -> list[Tensor]:
        return [self.prior_KD, self.latent_KDD, *super().matrices]

    @property
    def scores_per_row(self) -> int:
        return len(self.prior_KD) * super().scores_per_row

    def logp(
        self,
        hidden: Tensor,
        prior_KD: Tensor,
        latent_KDD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None = None,
    ) -> Tensor:
        log_prior = log_softmax(F.linear(hidden, prior_KD))
        latent = F.linear(hidden, latent_KDD.flatten(0, 1)).view(*hidden.shape[:-1], *latent_KDD.shape[:2])
        logp = log_softmax(F.linear(latent.tanh() if self.bent else latent, weight_VD, bias_V))
        return torch.logsumexp(log_prior[..., None] + logp, dim=-2)


@dataclass(frozen=True)
class MixtureHeadConfig(OutputMatrixConfig):
    """A mixture-of-softmaxes head."""

    experts: int = 4
    """The number of softmaxes. Memory and time grow with it."""
    bent: bool = True
    """Apply tanh to h_k, as in the paper; otherwise h_k = W_k h."""

    def __post_init__(self) -> None:
        if self.experts < 1:
            raise ValueError(f"experts={self.experts} must be at least 1")

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Mixture:
        return Mixture(self.build_softmax(width, vocab_size, embed), width, self.experts, self.bent)
