"""The plain output layer.

    log p(y = i | h) = hᵀe_i + b_i − logsumexp_j (hᵀe_j + b_j)

The matrix of all e_i is the head's own, or the input embedding (tied: Press & Wolf 2017, §2,
papers.bib: press2017using). It is what basis-aware sampling needs to know of a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.heads.chunked_loss import linear_loss
from unspool.nn.linear import linear


def normalised(scores: Tensor) -> Tensor:
    """log_softmax in single precision at least: half precision rounds the sum away."""
    return torch.log_softmax(scores if scores.dtype == torch.float64 else scores.float(), dim=-1)


def rank_of_log_probabilities(width: int, bias: Tensor | None) -> int:
    """The most that log p of many contexts can have: W h has rank D; normalisation and a bias add 1 each.

    Yang et al. 2018, §2.2 (papers.bib: yang2018breaking).
    """
    return width + 1 + (bias is not None)


class LinearSoftmax(nn.Module):
    """Softmax over inner products with one vector for each word, whoever owns these: `weight` and `bias`."""

    weight: Tensor
    bias: nn.Parameter | None

    @property
    def rank_limit(self) -> int:
        """As `protocols.Head` says."""
        return rank_of_log_probabilities(self.weight.shape[1], self.bias)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised."""
        return linear(hidden, self.weight, self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return normalised(self.logits(hidden))

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what is minimised and of −log p, as `protocols.LossHead` says."""
        return linear_loss(hidden_MD, self.weight, self.bias, targets_M, weights_M, smoothing)


class Softmax(LinearSoftmax):
    """The vectors are its own."""

    def __init__(self, width: int, vocab_size: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None


class TiedSoftmax(LinearSoftmax):
    """The vectors are the rows of an embedding. It owns no weights but a bias."""

    def __init__(self, embed: nn.Embedding, bias: bool = False) -> None:
        super().__init__()
        self._embed = (embed,)  # in a tuple, so that torch does not register the embedding twice
        self.bias = nn.Parameter(torch.zeros(embed.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """(V, D): the embedding's."""
        return self._embed[0].weight


@dataclass(frozen=True)
class SoftmaxHeadConfig:
    """The plain softmax."""

    tied: bool | None = None
    """The output matrix is the input embedding; where it is left out, as the model's `tied` says."""
    bias: bool = False
    """One number for each word, added to its score."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Softmax | TiedSoftmax:
        """The head that reads hidden vectors of this width."""
        if not self.tied:
            return Softmax(width, vocab_size, self.bias)
        if embed is None or embed.weight.shape != (vocab_size, width):
            shape = None if embed is None else tuple(embed.weight.shape)
            raise ValueError(
                f"a tied head needs an embedding of shape {(vocab_size, width)}, but the model's is {shape}: "
                "set tied to false"
            )
        return TiedSoftmax(embed, self.bias)


# Softmax with an inverse temperature β.
#
#     log p(y = i | h) = β·hᵀe_i − logsumexp_j β·hᵀe_j,   β = 1/√D at first
#
# With independent entries of variance 1 in h and e, hᵀe has variance D, and β·hᵀe has variance 1: the same
# factor as inside attention (Vaswani et al. 2017, §3.2.1, papers.bib: vaswani2017attention). β stays as it
# is, or is learnt.


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
