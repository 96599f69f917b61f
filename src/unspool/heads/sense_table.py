"""Which senses belong to which word, and sums over the senses of every word.

    log P(y = i) = logsumexp_j log P(s = ⟨i, j⟩)

Miao et al. 2019, §3 (papers.bib: miao2019kernelized): the Bayesian composition of a word's senses. Senses
stand in any order. Words have different numbers of them, so that the sum goes by rank: all first senses
at once, then the second senses of those words that have one, and so on.

Where many such sums are taken, the senses may be put in order first: the first senses of all words, those
of words with more senses before others, then the second senses of those that have one, in the same order, and
so on. Then the senses of each rank lie side by side, and the sums need slices alone.

Shapes: V words, S senses, J the most senses that a word has, W the words that have several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor


@dataclass(frozen=True)
class SenseTable:
    """The senses of every word."""

    words_S: Tensor
    """The word of every sense."""
    senses_VJ: Tensor
    """The senses of every word; where a word has fewer than J, the last places repeat its first."""
    real_VJ: Tensor
    """Which of those places are senses."""
    further: tuple[tuple[Tensor, Tensor], ...]
    """For j = 1 … J − 1: the words that have a sense of that rank, and those senses."""
    plain: bool
    """Every word has one sense, in the order of the words."""
    order_S: Tensor
    """The senses, put in order."""
    places_S: Tensor
    """Where each sense stands in that order."""
    ranks: tuple[slice, ...]
    """The places of the senses of each rank."""

    @classmethod
    def of(cls, words_S: Tensor, vocab_size: int) -> SenseTable:
        """The table, from the word of every sense."""
        counts_V = torch.bincount(words_S, minlength=vocab_size)
        lacking = (counts_V[:vocab_size] == 0).nonzero()[:, 0].tolist()
        if lacking:
            raise ValueError(
                f"{len(lacking)} of {vocab_size} words have no sense, the first of them word {lacking[0]}: "
                "give every word at least one"
            )
        if len(counts_V) > vocab_size:
            raise ValueError(
                f"a sense belongs to word {len(counts_V) - 1}, but there are {vocab_size} words: "
                f"name words from 0 to {vocab_size - 1}"
            )
        most = int(counts_V.max())
        order_S = torch.argsort(words_S, stable=True)
        sorted_S = words_S[order_S]
        starts_V = counts_V.cumsum(0) - counts_V
        rank_S = torch.arange(len(words_S), device=words_S.device) - starts_V[sorted_S]
        senses_VJ = order_S[starts_V][:, None].repeat(1, most)
        senses_VJ[sorted_S, rank_S] = order_S
        real_VJ = torch.arange(most, device=words_S.device) < counts_V[:, None]
        having = [real_VJ[:, rank].nonzero()[:, 0] for rank in range(1, most)]
        further = tuple((words, senses_VJ[words, rank]) for rank, words in enumerate(having, start=1))
        plain = most == 1 and bool((order_S == torch.arange(vocab_size, device=words_S.device)).all())
        most_first_V = torch.argsort(counts_V, descending=True, stable=True)
        ordered_S = torch.cat(
            [senses_VJ[most_first_V[: int(real_V.sum())], rank] for rank, real_V in enumerate(real_VJ.t())]
        )
        ends = real_VJ.sum(0).cumsum(0).tolist()
        ranks = tuple(slice(*it) for it in zip([0, *ends[:-1]], ends, strict=True))
        return cls(words_S, senses_VJ, real_VJ, further, plain, ordered_S, torch.argsort(ordered_S), ranks)

    @property
    def several(self) -> int:
        """How many words have several senses."""
        return self.ranks[1].stop - self.ranks[1].start if len(self.ranks) > 1 else 0

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Of the words that have several senses, by rank: the places of the senses, and the words."""
        for rank in self.ranks:
            words = min(rank.stop - rank.start, self.several)
            yield slice(rank.start, rank.start + words), slice(words)

    def folded(self, ordered_RS: Tensor, add: Callable[..., Tensor]) -> Tensor:
        """(R, S) → (R, W): sums over the senses of the words that have several."""
        sums_RW = ordered_RS[:, : self.several].clone()
        for senses, words in islice(self.blocks(), 1, None):
            add(sums_RW[:, words], ordered_RS[:, senses], out=sums_RW[:, words])
        return sums_RW

    def by_word(self, scores: Tensor) -> Tensor:
        """(…, S) → (…, V): logsumexp over the senses of every word."""
        if self.plain:
            return scores
        sums = scores.index_select(-1, self.senses_VJ[:, 0])
        for words, senses in self.further:
            more = torch.logaddexp(sums.index_select(-1, words), scores.index_select(-1, senses))
            sums = sums.index_copy(-1, words, more)
        return sums
