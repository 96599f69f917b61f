"""KerBS, the kernelized Bayesian softmax: every word has one or more senses, each with a vector and a θ.

    P(s = ⟨i, j⟩ | h) = softmax over all senses of all words of K_θ(h, w_ij)
    P(y = i | h) = Σ_j P(s = ⟨i, j⟩ | h)

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). The kernel and the sum over senses are in
`kerbs_kernel.py`, the loss in `kerbs_loss.py`. The training hook `kerbs_reallocate` moves senses between
words, based on the statistics collected here. There is no output matrix, and basis-aware sampling does not
support this head.

Differs from the paper: the senses of a word start close to each other, so the head starts as a plain
softmax and learns as fast. Senses that start far apart split a word's contexts at random and learn far more
slowly (docs/lab-log.md).

Symbols: w `senses_SD`, θ `theta_S`, ⟨i, ·⟩ `words_S`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.arguments import Checked, number
from unspool.heads.kerbs_kernel import SenseTable, clamp_theta, kappa_and_slope, kernel, min_norm, norms
from unspool.heads.kerbs_loss import kerbs_loss
from unspool.heads.softmax import log_softmax
from unspool.nn.linear import linear

SENSE_SPREAD = 0.6
"""The initial distance of a word's extra senses from its first, relative to the norm of that."""

MAX_SENSES = 1000
"""The largest average number of senses per word."""


@dataclass(frozen=True)
class SenseStatistics:
    """Sums over training targets; the sums of a word are over the targets that are the word."""

    targets: Tensor
    """The number of targets."""
    logp_V: Tensor
    """Σ log P(y = i)."""
    usage_S: Tensor
    """Σ P(s = ⟨i, j⟩)."""


class Kerbs(nn.Module):
    """Softmax over senses, summed by word."""

    weight = rank_limit = None

    owners_S: Tensor
    """`words_S` as floats, because checkpoints only store floats; exact for any vocabulary."""

    def __init__(self, width: int, words_S: Tensor, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.senses_SD = nn.Parameter(torch.empty(len(words_S), width))
        nn.init.normal_(self.senses_SD, std=width**-0.5)
        self.theta_S = nn.Parameter(torch.zeros(len(words_S)))
        self.register_buffer("owners_S", words_S.float())
        self._statistics: SenseStatistics | None = None
        self._table: tuple[Tensor, int, SenseTable] | None = None

    @property
    def words_S(self) -> Tensor:
        return self.table.words_S

    @property
    def table(self) -> SenseTable:
        """The senses of every word; rebuilt when `owners_S` changes."""
        owners_S = self.owners_S
        version = 0 if owners_S.is_inference() else owners_S._version
        if self._table is None or self._table[0] is not owners_S or self._table[1] != version:
            self._table = (owners_S, version, SenseTable.from_words(owners_S.long(), self.vocab_size))
        return self._table[2]

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V): logsumexp of the kernel values of each word's senses."""
        is_full_precision = hidden.dtype == self.senses_SD.dtype and hidden.dtype.itemsize >= 4
        if torch.is_grad_enabled() or not is_full_precision or torch.is_autocast_enabled(hidden.device.type):
            scores = kernel(hidden, self.senses_SD, self.theta_S)
        else:
            scores = self._scores(hidden)
        return self.table.logsumexp_by_word(scores)

    def forward(self, hidden: Tensor) -> Tensor:
        return log_softmax(self.logits(hidden))

    def _scores(self, hidden: Tensor) -> Tensor:
        """The same kernel with the matrix product that is fast for few rows."""
        tiny = min_norm(hidden)
        length, length_S = norms(hidden), norms(self.senses_SD)[:, 0].clamp_min(tiny)
        theta_S = clamp_theta(self.theta_S)
        unit = hidden / length.clamp_min(tiny)
        scores = linear(unit, self.senses_SD).mul_(-theta_S / length_S).expm1_()
        return scores.mul_(-kappa_and_slope(theta_S)[0] / theta_S * length_S).mul_(length)

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        loss, nll, statistics = kerbs_loss(
            hidden_MD, self.senses_SD, self.theta_S, self.table, targets_M, weights_M, smoothing
        )
        if torch.is_grad_enabled() and self.training:
            self._record(*statistics)
        return loss, nll

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Kerbs:
        """Move the head to another device or dtype; `owners_S` keeps its dtype, which half would corrupt."""
        exact_S = self.owners_S
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.owners_S.dtype != exact_S.dtype:
            self.owners_S = exact_S.to(self.owners_S.device)
        return self

    def pop_statistics(self) -> SenseStatistics:
        """Return the statistics since the last call and reset them."""
        statistics, self._statistics = self._statistics, None
        if statistics is None:
            like = self.theta_S.detach()
            statistics = SenseStatistics(
                like.new_zeros(()), like.new_zeros(self.vocab_size), torch.zeros_like(like)
            )
        return statistics

    @torch.no_grad()
    def _record(self, targets_M: Tensor, logp_M: Tensor, usage_MJ: Tensor) -> None:
        statistics = self._statistics = self.pop_statistics()
        senses_MJ, real_MJ = self.table.senses_VJ[targets_M], self.table.is_sense_VJ[targets_M]
        statistics.targets.add_(len(targets_M))
        statistics.logp_V.index_add_(0, targets_M, logp_M.to(statistics.logp_V.dtype))
        statistics.usage_S.index_add_(0, senses_MJ[real_MJ], usage_MJ[real_MJ].to(statistics.usage_S.dtype))

    @torch.no_grad()
    def reassign(self, sense: int, word: int, vector_D: Tensor) -> None:
        """Move a sense to another word, with a new vector and θ = 0."""
        self.owners_S[sense] = word
        self.senses_SD[sense] = vector_D
        self.theta_S[sense] = 0.0


@dataclass(frozen=True)
class KerbsHeadConfig(Checked):
    """A KerBS head (kernelized Bayesian softmax)."""

    senses: float = number(1.0, at_least=1, at_most=MAX_SENSES, advice="A word of the paper has up to 4.")
    """Average senses per word: each word has one; the others start evenly spread and move during training."""
    kernel: bool = True
    """Learn θ of every sense. If False, θ = 0: plain inner products, the ablation of the paper."""

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Kerbs:  # noqa: ARG002
        """Build the head for hidden vectors of this width; it is never tied."""
        words_S = torch.arange(round(self.senses * vocab_size)) % vocab_size
        head = Kerbs(width, words_S, vocab_size)
        with torch.no_grad():
            first, further = head.senses_SD[words_S[vocab_size:]], head.senses_SD[vocab_size:]
            further.mul_(SENSE_SPREAD).add_(first)
        head.theta_S.requires_grad_(self.kernel)
        return head
