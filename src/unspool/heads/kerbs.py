"""KerBS: every word has one or more senses, each with a vector and a width of its own.

    P(s = ⟨i, j⟩ | h) = softmax over all senses of all words of K_θ(h, w_ij)
    P(y = i | h) = Σ_j P(s = ⟨i, j⟩ | h)

Miao et al. 2019, §3 (papers.bib: miao2019kernelized). The kernel is in `kerbs_kernel.py`, the sum over senses
in `SenseTable` there, the loss in `kerbs_loss.py`; the number of senses per word is set during training by
the hook `kerbs_reallocate`, which reads the sums kept here. There is no output matrix, and basis-aware
sampling refuses the head.

Differs from the paper: the senses of a word begin close to each other, so that the head begins as a plain
softmax and learns as fast. Senses that begin apart share a word's contexts out at random, before anything is
known about them, and learn far slower (docs/lab-log.md).

Symbols: w `senses_SD`, θ `theta_S`, ⟨i, ·⟩ `words_S`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.heads.kerbs_kernel import SenseTable, bounded, kernel, lengths, scale, shortest
from unspool.heads.kerbs_loss import kerbs_loss
from unspool.heads.softmax import normalised
from unspool.nn.linear import linear

NEAR = 0.6
"""How far a word's further senses are from its first in the beginning, as a part of its length."""

MOST = 1000
"""Senses per word on average. More of them than anybody needs is a slip of the pen."""


@dataclass(frozen=True)
class SenseStatistics:
    """Sums over the targets of training: for each word over those that were the word."""

    targets: Tensor
    """How many there were."""
    logp_V: Tensor
    """Σ log P(y = i)."""
    usage_S: Tensor
    """Σ P(s = ⟨i, j⟩)."""


class Kerbs(nn.Module):
    """Softmax over senses, summed by word."""

    weight = rank_limit = None
    """A word has several vectors, and a kernel in place of their product."""

    owners_S: Tensor
    """`words_S`, in floating point: the files of a run hold nothing else, and words are exact in it."""

    def __init__(self, width: int, words_S: Tensor, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.senses_SD = nn.Parameter(torch.empty(len(words_S), width))
        nn.init.normal_(self.senses_SD, std=width**-0.5)
        self.theta_S = nn.Parameter(torch.zeros(len(words_S)))
        self.register_buffer("owners_S", words_S.float())
        self._seen: SenseStatistics | None = None
        self._table: tuple[Tensor, int, SenseTable] | None = None

    @property
    def words_S(self) -> Tensor:
        """The word of every sense."""
        return self.table.words_S

    @property
    def table(self) -> SenseTable:
        """Which senses belong to which word; made anew when `owners_S` has changed."""
        owners_S = self.owners_S
        version = 0 if owners_S.is_inference() else owners_S._version
        if self._table is None or self._table[0] is not owners_S or self._table[1] != version:
            self._table = (owners_S, version, SenseTable.of(owners_S.long(), self.vocab_size))
        return self._table[2]

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V), not normalised: the logarithm of the summed exponentials of a word's senses."""
        if torch.is_grad_enabled() or not self._is_plain(hidden):
            scores = kernel(hidden, self.senses_SD, self.theta_S)
        else:
            scores = self._scores(hidden)
        return self.table.by_word(scores)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return normalised(self.logits(hidden))

    def _is_plain(self, hidden: Tensor) -> bool:
        """Everything is in one precision, and not in half of one."""
        plain = hidden.dtype == self.senses_SD.dtype and hidden.dtype.itemsize >= 4
        return plain and not torch.is_autocast_enabled(hidden.device.type)

    def _scores(self, hidden: Tensor) -> Tensor:
        """The same kernel, from a product that is made for a few rows."""
        tiny = shortest(hidden)
        length, length_S = lengths(hidden), lengths(self.senses_SD)[:, 0].clamp_min(tiny)
        theta_S = bounded(self.theta_S)
        unit = hidden / length.clamp_min(tiny)
        scores = linear(unit, self.senses_SD).mul_(-theta_S / length_S).expm1_()
        return scores.mul_(-scale(theta_S)[0] / theta_S * length_S).mul_(length)

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Weighted sums of what is minimised and of −log p, as `protocols.LossHead` says."""
        loss, nll, seen = kerbs_loss(
            hidden_MD, self.senses_SD, self.theta_S, self.table, targets_M, weights_M, smoothing
        )
        if torch.is_grad_enabled() and self.training:
            self._note(*seen)
        return loss, nll

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Kerbs:
        """Moves the head to another device or precision: all but `owners_S`, which half of one would ruin."""
        exact_S = self.owners_S
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.owners_S.dtype != exact_S.dtype:
            self.owners_S = exact_S.to(self.owners_S.device)
        return self

    def take_seen(self) -> SenseStatistics:
        """What the losses since the last call have seen; then the sums begin anew."""
        seen, self._seen = self._seen, None
        if seen is None:
            like = self.theta_S.detach()
            seen = SenseStatistics(
                like.new_zeros(()), like.new_zeros(self.vocab_size), torch.zeros_like(like)
            )
        return seen

    @torch.no_grad()
    def _note(self, targets_M: Tensor, logp_M: Tensor, usage_MJ: Tensor) -> None:
        seen = self._seen = self.take_seen()
        senses_MJ, real_MJ = self.table.senses_VJ[targets_M], self.table.real_VJ[targets_M]
        seen.targets.add_(len(targets_M))
        seen.logp_V.index_add_(0, targets_M, logp_M.to(seen.logp_V.dtype))
        seen.usage_S.index_add_(0, senses_MJ[real_MJ], usage_MJ[real_MJ].to(seen.usage_S.dtype))

    @torch.no_grad()
    def reassign(self, sense: int, word: int, vector_D: Tensor) -> None:
        """Give a sense to another word, with a new vector and θ = 0."""
        self.owners_S[sense] = word
        self.senses_SD[sense] = vector_D
        self.theta_S[sense] = 0.0


@dataclass(frozen=True)
class KerbsHeadConfig:
    """Kernelized Bayesian softmax."""

    senses: float = 1.0
    """Senses per word on average: every word has one, the others are spread evenly until they are moved."""
    kernel: bool = True
    """Every sense learns its θ. Without it all stay 0: plain inner products, the paper's ablation."""

    def __post_init__(self) -> None:
        if not self.senses >= 1.0:
            raise ValueError(f"senses={self.senses} must be at least 1: every word needs a sense")
        if self.senses > MOST:
            raise ValueError(f"senses={self.senses} must be at most {MOST}: a word of the paper has up to 4")

    def build(self, width: int, vocab_size: int, embed: nn.Embedding | None = None) -> Kerbs:  # noqa: ARG002
        """The head that reads hidden vectors of this width. It is never tied."""
        words_S = torch.arange(round(self.senses * vocab_size)) % vocab_size
        head = Kerbs(width, words_S, vocab_size)
        with torch.no_grad():
            first, further = head.senses_SD[words_S[vocab_size:]], head.senses_SD[vocab_size:]
            further.mul_(NEAR).add_(first)
        head.theta_S.requires_grad_(self.kernel)
        return head
