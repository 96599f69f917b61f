"""What the senses of a KerBS head have become: how many a word has, how wide they are, how far apart.

    width of ⟨i, j⟩: θ_ij,   angle of two senses of a word: cos(w_ij, w_ik)

Miao et al. 2019, §4 (papers.bib: miao2019kernelized): words with several meanings end with several senses,
words that occur in many kinds of context with a larger θ.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.arguments import as_whole, declares_abilities, ids, shown, within
from unspool.heads.kerbs_kernel import kernel
from unspool.interfaces import SenseHead


@dataclass(frozen=True)
class WordSenses:
    """The senses of one word."""

    word: int
    thetas: tuple[float, ...]
    lengths: tuple[float, ...]
    """|w| of each."""
    closest: float | None
    """The largest cosine of two of them; None where there is one."""
    farthest: float | None
    """The smallest."""


@dataclass(frozen=True)
class Senses:
    """The senses of all words."""

    words: tuple[WordSenses, ...]
    """Most senses first; among equals, the farthest apart first."""

    @property
    def by_number(self) -> dict[int, int]:
        """How many words have one sense, two, …"""
        return dict(sorted(Counter(len(it.thetas) for it in self.words).items()))


@torch.no_grad()
def senses(model: Any) -> Senses:
    """Read the senses off a model with a KerBS head."""
    head = sense_head(model)
    vectors_SD, thetas_S = head.senses_SD.detach().double().cpu(), head.theta_S.detach().double().cpu()
    found = []
    for word, (places, real) in enumerate(
        zip(head.table.senses_VJ.tolist(), head.table.real_VJ.tolist(), strict=True)
    ):
        own = [sense for sense, there in zip(places, real, strict=True) if there]
        units_JD = torch.nn.functional.normalize(vectors_SD[own], dim=-1)
        above = torch.ones(len(own), len(own), dtype=torch.bool).triu(1)
        cosines = (units_JD @ units_JD.t())[above].tolist()
        found.append(
            WordSenses(
                word,
                tuple(thetas_S[own].tolist()),
                tuple(vectors_SD[own].norm(dim=-1).tolist()),
                max(cosines, default=None),
                min(cosines, default=None),
            )
        )
    found.sort(key=lambda it: (-len(it.thetas), 1.0 if it.farthest is None else it.farthest, it.word))
    return Senses(tuple(found))


def sense_head(model: Any) -> SenseHead:
    """The head whose senses are looked at; a TypeError where a model has no such head."""
    head: SenseHead | None = model.sense_head if declares_abilities(model) else None
    if head is None:
        raise TypeError(
            f"the model is {shown(model)}, and only a KerBS head has senses: train one with "
            'model.head.kind = "kerbs"'
        )
    return head


# Which sense of a word says it where: how much each is used, and the contexts that are most its own.
#
#     P(s = ⟨i, j⟩ | y = i, h) = exp K_θij(h, w_ij) / Σ_k exp K_θik(h, w_ik)
#
# Miao et al. 2019, §4 (papers.bib: miao2019kernelized), who show contexts of each sense. A sense's use is the
# mean of its probability over the places where its word is said.


ROWS = 256
"""Places whose scores are held at once."""


@dataclass(frozen=True)
class Place:
    """Somewhere that a word was said."""

    probability: float
    """Of the sense, given the word."""
    before: tuple[int, ...]
    """The tokens that the model had read, the last ones."""
    source: tuple[int, ...] = ()
    """What the encoder of an encoder–decoder had read; nothing for other models."""


@dataclass(frozen=True)
class WordUse:
    """How the senses of one word were used."""

    count: int
    """Places where the word was said."""
    shares: list[float]
    """Of each sense; they sum to 1. Empty where the word was not said."""
    places: list[list[Place]]
    """Of each sense, the most probable first."""


@torch.no_grad()
def sense_contexts(
    model: Any, batches: Iterable[Batch], words: Collection[int], *, examples: int = 3, before: int = 8
) -> dict[int, WordUse]:
    """The use of the senses of some words, of a model with a KerBS head, in the targets of batches."""
    head = sense_head(model)
    words = ids("words", words, empty=True)
    within("words", words, head.vocab_size)
    examples = as_whole(
        "examples", examples, at_least=0, advice="It is how many contexts of a sense are kept."
    )
    before = as_whole("before", before, at_least=1, advice="It is how many tokens of a context are shown.")
    if isinstance(batches, str | type) or not isinstance(batches, Iterable):
        raise TypeError(f"batches is {shown(batches)}, but must hold a Batch or more, such as a feed does.")
    wanted = torch.zeros(head.vocab_size, dtype=torch.bool)
    wanted[list(words)] = True
    used = {word: _Gathered(int(head.table.real_VJ[word].sum()), examples) for word in words}
    model.eval()
    for batch in batches:
        if not isinstance(batch, Batch):
            raise TypeError(
                f"batches holds {shown(batch)}, but must hold a Batch or more, such as a feed does."
            )
        places = (wanted[batch.targets_NU] & (batch.weights_NU > 0)).nonzero()
        if not len(places):
            continue
        sources = _sources(batch)
        hidden_MD = model.hidden_for(batch.to(head.theta_S.device))[places[:, 0], places[:, 1]]
        targets_M = batch.targets_NU[places[:, 0], places[:, 1]]
        for start in range(0, len(places), ROWS):
            part = slice(start, start + ROWS)
            for place, word, shares_J in zip(
                places[part].tolist(),
                targets_M[part].tolist(),
                _shares(head, hidden_MD[part], targets_M[part]),
                strict=True,
            ):
                row, at = place
                context = batch.inputs_NT[row, max(0, at + 1 - before) : at + 1].tolist()
                used[word].add(shares_J, tuple(context), sources[row] if sources else ())
    return {word: it.use() for word, it in used.items()}


def _sources(batch: Batch) -> list[tuple[int, ...]]:
    """Of every row, without padding; none at all where no model reads them."""
    if batch.source_NS is None or batch.source_lengths_N is None:
        return []
    rows = zip(batch.source_NS.tolist(), batch.source_lengths_N.tolist(), strict=True)
    return [tuple(row[:length]) for row, length in rows]


def _shares(head: Any, hidden_MD: Tensor, targets_M: Tensor) -> list[list[float]]:
    senses_MJ = head.table.senses_VJ[targets_M]
    scores_MS = kernel(hidden_MD, head.senses_SD, head.theta_S)
    own_MJ = scores_MS.gather(1, senses_MJ).masked_fill(~head.table.real_VJ[targets_M], -torch.inf)
    shares: list[list[float]] = own_MJ.softmax(-1).tolist()
    return shares


class _Gathered:
    def __init__(self, senses: int, examples: int) -> None:
        self.count, self.examples = 0, examples
        self.sums = [0.0] * senses
        self.best: list[list[tuple[float, int, Place]]] = [[] for _ in range(senses)]

    def add(self, shares_J: list[float], before: tuple[int, ...], source: tuple[int, ...]) -> None:
        self.count += 1
        for j, best in enumerate(self.best):
            self.sums[j] += shares_J[j]
            heapq.heappush(best, (shares_J[j], -self.count, Place(shares_J[j], before, source)))
            if len(best) > self.examples:
                heapq.heappop(best)

    def use(self) -> WordUse:
        return WordUse(
            self.count,
            [each / self.count for each in self.sums] if self.count else [],
            [[place for _, _, place in sorted(it, reverse=True)] for it in self.best],
        )
