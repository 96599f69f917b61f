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

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.heads.chunked_loss import rowwise_loss
from unspool.heads.softmax import OutputMatrixConfig, Softmax, TiedSoftmax, log_softmax


class Mixture(nn.Module):
    """K softmaxes over one set of word vectors, weighted by the context."""

    logits = None
    """A sum of softmaxes does not have logits."""
    weight = rank_limit = None
    """Each expert has a different hidden vector, so there is no single output matrix."""

    def __init__(self, words: Softmax | TiedSoftmax, width: int, experts: int, bent: bool = True) -> None:
        super().__init__()
        self.words = words
        self._logp = partial(_logp, torch.tanh if bent else _identity)
        self.prior_KD = nn.Parameter(torch.empty(experts, width))
        self.latent_KDD = nn.Parameter(torch.empty(experts, width, width))
        for matrix in (self.prior_KD, self.latent_KDD):
            nn.init.normal_(matrix, std=width**-0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return self._logp(hidden, *self._matrices)

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of the loss and of −log p; see `interfaces.LossHead`."""
        scores = len(self.prior_KD) * len(self.words.weight)
        return rowwise_loss(self._logp, hidden_MD, self._matrices, targets_M, weights_M, smoothing, scores)

    @property
    def _matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        return self.prior_KD, self.latent_KDD, self.words.weight, self.words.bias


def _logp(
    activation: Callable[[Tensor], Tensor],
    hidden: Tensor,
    prior_KD: Tensor,
    latent_KDD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
) -> Tensor:
    log_prior = log_softmax(F.linear(hidden, prior_KD))
    latent = activation(F.linear(hidden, latent_KDD.flatten(0, 1)))
    latent = latent.view(*hidden.shape[:-1], *latent_KDD.shape[:2])
    logp = log_softmax(F.linear(latent, weight_VD, bias_V))
    return torch.logsumexp(log_prior[..., None] + logp, dim=-2)


def _identity(latent: Tensor) -> Tensor:
    return latent


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
        """Build the head for hidden vectors of this width."""
        words = self.build_softmax(width, vocab_size, embed)
        return Mixture(words, width, self.experts, self.bent)
