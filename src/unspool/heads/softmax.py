"""Softmax output layers: plain, tied to the input embedding, with an inverse temperature, or bilinear.

    log p(y = i | h) = hᵀe_i + b_i − logsumexp_j (hᵀe_j + b_j)

The output matrix of all e_i is a parameter of the head or, if tied, the input embedding (Press & Wolf 2017,
§2, papers.bib: press2017using). Basis-aware sampling needs this matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unspool.arguments import Checked, integer
from unspool.heads.chunked_loss import linear_loss
from unspool.interfaces import Step
from unspool.nn.linear import linear


def log_softmax(scores: Tensor) -> Tensor:
    """log_softmax in float32 or better; half precision would lose the sum to rounding."""
    return torch.log_softmax(scores if scores.dtype == torch.float64 else scores.float(), dim=-1)


def predict_step(head: Any, hidden_ND: Tensor, attention: Tensor | None = None) -> Step:
    """A Step with log-probabilities, and the log-normaliser that converts them back to logits.

        log p_i = z_i − log Σ_j exp(z_j),   so that   log_norm = z_i − log p_i   for any i

    Penalties defined on logits (the repetition penalty) need it. It is None for a head without logits (a
    mixture of softmaxes).
    """
    if head.logits is None:
        return Step(head(hidden_ND), hidden_ND, attention)
    logits_NV = head.logits(hidden_ND)
    logp_NV = log_softmax(logits_NV)
    return Step(logp_NV, hidden_ND, attention, log_norm_N=logits_NV[:, 0] - logp_NV[:, 0])


def step_from_logits(logits_NV: Tensor, hidden_ND: Tensor | None = None) -> Step:
    """A Step from the logits of another library."""
    logits_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    return Step(log_softmax(logits_NV), hidden_ND, log_norm_N=logits_NV.logsumexp(-1))


def log_prob_rank(width: int, bias: Tensor | None) -> int:
    """The largest rank of a matrix of log-probabilities: D, plus 1 for the normaliser and 1 for a bias.

    Yang et al. 2018, §2.2 (papers.bib: yang2018breaking).
    """
    return width + 1 + (bias is not None)


class LinearSoftmax(nn.Module):
    """Base class: softmax over inner products with the rows of `weight`, plus `bias`."""

    weight: Tensor
    bias: nn.Parameter | None

    @property
    def rank_limit(self) -> int:
        return log_prob_rank(self.weight.shape[1], self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.weight, self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return log_softmax(self.logits(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        return linear_loss(hidden_MD, self.weight, self.bias, targets_M, weights_M, smoothing)


class Softmax(LinearSoftmax):
    """Softmax with a separate output matrix."""

    def __init__(self, width: int, vocab_size: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None


class TiedSoftmax(LinearSoftmax):
    """Softmax whose output matrix is the input embedding."""

    def __init__(self, embed: nn.Embedding, bias: bool = False) -> None:
        super().__init__()
        self._embed = (embed,)  # a tuple, so that torch does not register the embedding twice
        self.bias = nn.Parameter(torch.zeros(embed.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self._embed[0].weight


class ProjectedSoftmax(nn.Module):
    """Base class: a softmax of a linear function of the hidden vector, of width D."""

    def __init__(self, inner: Softmax | TiedSoftmax, width: int) -> None:
        super().__init__()
        self.inner, self.width = inner, width

    def project(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, E), the input of the softmax."""
        raise NotImplementedError

    @property
    def bias(self) -> Tensor | None:
        return self.inner.bias

    @property
    def rank_limit(self) -> int:
        return log_prob_rank(min(self.width, self.inner.weight.shape[1]), self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.inner.logits(self.project(hidden))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.inner(self.project(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        return self.inner.loss(self.project(hidden_MD), targets_M, weights_M, smoothing)


class Tempered(ProjectedSoftmax):
    """Softmax with an inverse temperature β, fixed or learnt.

        log p(y = i | h) = β·hᵀe_i − logsumexp_j β·hᵀe_j,   β = 1/√D at first

    With independent entries of variance 1 in h and e, hᵀe has variance D and β·hᵀe variance 1: the same
    factor as in attention (Vaswani et al. 2017, §3.2.1, papers.bib: vaswani2017attention).
    """

    def __init__(self, inner: Softmax | TiedSoftmax, width: int, learnt: bool = False) -> None:
        super().__init__(inner, width)
        self.beta = nn.Parameter(torch.tensor(width**-0.5), requires_grad=learnt)

    def project(self, hidden: Tensor) -> Tensor:
        return self.beta * hidden

    @property
    def weight(self) -> Tensor:
        """(V, D): the output matrix, β·e for every word."""
        return self.beta * self.inner.weight


class Bilinear(ProjectedSoftmax):
    """Bilinear softmax: a matrix W between hidden and word vectors, the identity at first.

        log p(y = i | h) = hᵀWe_i − logsumexp_j hᵀWe_j

    Folding W into every e_i gives a plain softmax, hᵀ(We_i). W allows word vectors of another width than h,
    or word vectors tied to an input embedding (Gulordava et al. 2018, papers.bib: gulordava2018represent).
    Symbols: W `form_DE`, e `inner.weight`.
    """

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


@dataclass(frozen=True, kw_only=True)
class OutputMatrixConfig(Checked):
    """Settings of heads with one vector per word."""

    tied: bool | None = None
    """Use the input embedding as output matrix; None means the `tied` setting of the model."""
    bias: bool = False
    """Add a learnt bias to the logits."""

    def build_softmax(self, width: int, vocab_size: int, embed: nn.Embedding | None) -> Softmax | TiedSoftmax:
        if not self.tied:
            return Softmax(width, vocab_size, self.bias)
        if embed is None or embed.weight.shape != (vocab_size, width):
            shape = None if embed is None else tuple(embed.weight.shape)
            raise ValueError(
                f"a tied head needs an embedding of shape {(vocab_size, width)}, not {shape}: set tied=false"
            )
        return TiedSoftmax(embed, self.bias)


@dataclass(frozen=True)
class SoftmaxHeadConfig(OutputMatrixConfig):
    """A plain softmax head."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Softmax | TiedSoftmax:
        return self.build_softmax(width, vocab_size, embed)


@dataclass(frozen=True)
class TemperedHeadConfig(OutputMatrixConfig):
    """Softmax with an inverse temperature β = 1/√D; an untied output matrix starts with variance 1."""

    learnt: bool = False
    """Learn β."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Tempered:
        inner = self.build_softmax(width, vocab_size, embed)
        if not self.tied:
            nn.init.normal_(inner.weight)
        return Tempered(inner, width, self.learnt)


@dataclass(frozen=True)
class BilinearHeadConfig(OutputMatrixConfig):
    """A bilinear softmax head.

    `tied` word vectors may have any width; None means False if there is an `inner_width`.
    """

    inner_width: int | None = integer(None, at_least=1)
    """Width of the word vectors; None means the width of the hidden vectors."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Bilinear:
        inner_width = self.inner_width or (embed.embedding_dim if self.tied and embed else width)
        return Bilinear(self.build_softmax(inner_width, vocab_size, embed), width)
