"""Heads whose log-probabilities are not linear in h: mixture of softmaxes, sigsoftmax, capped logits.

They have neither an output matrix nor a rank limit, and basis-aware sampling does not support them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.arguments import integer, number
from unspool.heads.chunked_loss import rowwise_loss
from unspool.heads.softmax import OutputMatrixConfig, Softmax, TiedSoftmax, log_softmax


class RowwiseHead(nn.Module):
    """Base class: log-probabilities of each row from the hidden vector and some matrices."""

    weight = rank_limit = None
    logp: Callable[..., Tensor]
    """(hidden, *matrices) → log-probabilities."""

    def __init__(self, words: Softmax | TiedSoftmax) -> None:
        super().__init__()
        self.words = words

    @property
    def matrices(self) -> list[Tensor]:
        return [self.words.weight] if self.words.bias is None else [self.words.weight, self.words.bias]

    @property
    def scores_per_row(self) -> int:
        return len(self.words.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.logp(hidden, *self.matrices)

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        return rowwise_loss(
            self.logp, hidden_MD, self.matrices, targets_M, weights_M, smoothing, self.scores_per_row
        )


class Mixture(RowwiseHead):
    """Mixture of softmaxes: K softmaxes over the same words, each with a separate hidden vector.

        p(y = i | h) = Σ_k π_k · softmax_i(h_kᵀe_i),   π = softmax(Ph),   h_k = tanh(W_k h)

    Yang et al. 2018, §2.4 (papers.bib: yang2018breaking). The logarithm of a sum of softmaxes is not linear
    in h, so the matrix of log-probabilities may have any rank. If h is already the output of a tanh, a second
    tanh may slow learning a lot (docs/results/heads.md): `bent = False` omits it, h_k = W_k h.
    Symbols: P `prior_KD`, stacked W_1 … W_K `latent_KDD`, e `words.weight`.
    """

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

    experts: int = integer(4, at_least=1)
    """The number of softmaxes. Memory and time grow with it."""
    bent: bool = True
    """Apply tanh to h_k, as in the paper; otherwise h_k = W_k h."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Mixture:
        return Mixture(self.build_softmax(width, vocab_size, embed), width, self.experts, self.bent)


class ElementwiseSoftmax(RowwiseHead):
    """Base class: softmax of an elementwise function of the logits.

    log p(y = i | h) = f(z_i) − logsumexp_j f(z_j),   z_i = hᵀe_i + b_i
    """

    def function(self, scores: Tensor) -> Tensor:
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

    cap: float = number(30.0, above=0, advice="Gemma 2 uses 30.")
    """The largest absolute logit; Gemma 2 uses 30."""

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
