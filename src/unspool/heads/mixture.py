"""Mixture of softmaxes: several softmaxes over the same words, each of a hidden vector of its own.

    p(y = i | h) = Σ_k π_k · softmax_i(h_kᵀe_i),   π = softmax(Ph),   h_k = tanh(W_k h)

Yang et al. 2018, §2.4 (papers.bib: yang2018breaking). The logarithm of a sum of softmaxes is no
linear function of h, so that the matrix of log-probabilities may have any rank: the head has no output
matrix, and basis-aware sampling refuses it.

Where h has come out of a tanh, a second one may slow learning down a lot (docs/results/heads.md):
`bent = False` leaves it out, h_k = W_k h. The rank stays unbounded.

Symbols: P `prior_KD`, W_1 … W_K above each other `latent_KDD`, e `words.weight`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.heads.chunked_loss import rowwise_loss
from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax, normalised


class Mixture(nn.Module):
    """K softmaxes over one set of word vectors, weighted by the context."""

    logits = None
    """A sum of softmaxes is no log_softmax of anything."""
    weight = rank_limit = None
    """Each expert reads another vector: no one matrix makes the logits."""

    def __init__(self, words: Softmax | TiedSoftmax, width: int, experts: int, bent: bool = True) -> None:
        super().__init__()
        self.words = words
        self._logp = partial(_logp, torch.tanh if bent else _straight)
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
        """Weighted sums of what is minimised and of −log p, as `protocols.LossHead` says."""
        scores = len(self.prior_KD) * len(self.words.weight)
        return rowwise_loss(self._logp, hidden_MD, self._matrices, targets_M, weights_M, smoothing, scores)

    @property
    def _matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        return self.prior_KD, self.latent_KDD, self.words.weight, self.words.bias


def _logp(
    bend: Callable[[Tensor], Tensor],
    hidden: Tensor,
    prior_KD: Tensor,
    latent_KDD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
) -> Tensor:
    log_prior = normalised(F.linear(hidden, prior_KD))
    latent = bend(F.linear(hidden, latent_KDD.flatten(0, 1)))
    latent = latent.view(*hidden.shape[:-1], *latent_KDD.shape[:2])
    logp = normalised(F.linear(latent, weight_VD, bias_V))
    return torch.logsumexp(log_prior[..., None] + logp, dim=-2)


def _straight(latent: Tensor) -> Tensor:
    return latent


@dataclass(frozen=True)
class MixtureHeadConfig:
    """A mixture of softmaxes."""

    experts: int = 4
    """How many softmaxes are mixed. Memory and time grow with it."""
    bent: bool = True
    """h_k go through a tanh, as in the paper. Without it, h_k = W_k h."""
    tied: bool | None = None
    """The words' vectors are the input embedding; where it is left out, as the model's `tied` says."""
    bias: bool = False
    """One number for each word, added to its score."""

    def __post_init__(self) -> None:
        if self.experts < 1:
            raise ValueError(f"experts={self.experts} must be at least 1")

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Mixture:
        """The head that reads hidden vectors of this width."""
        words = SoftmaxHeadConfig(self.tied, self.bias).build(width, vocab_size, embed)
        return Mixture(words, width, self.experts, self.bent)
