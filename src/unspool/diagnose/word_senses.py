"""The senses of a KerBS head: their number, width and distance, and the contexts in which each is used.

    width of ⟨i, j⟩: θ_ij,   angle of two senses of a word: cos(w_ij, w_ik)
    P(s = ⟨i, j⟩ | y = i, h) = exp K_θij(h, w_ij) / Σ_k exp K_θik(h, w_ik)

Miao et al. 2019, §4 (papers.bib: miao2019kernelized): words with several meanings get several senses, and
words that occur in many kinds of context a larger θ. The use of a sense is the mean of its probability over
the occurrences of its word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unspool.arguments import as_int, ids, shown, within
from unspool.data.batch import Batch
from unspool.decode.lockstep import declares_abilities
from unspool.heads.kerbs_kernel import kernel

if TYPE_CHECKING:
    from unspool.heads.kerbs import Kerbs


@dataclass(frozen=True)
class WordSenses:
    """The senses of one word."""

    word: int
    thetas: tuple[float, ...]
    lengths: tuple[float, ...]
    """|w| of each sense."""
    closest: float | None
    """Largest cosine of two senses; None for one sense."""
    farthest: float | None
    """Smallest cosine of two senses."""


@dataclass(frozen=True)
class Senses:
    """The senses of all words."""

    words: tuple[WordSenses, ...]
    """Sorted by number of senses, then by their largest distance."""

    @property
    def by_number(self) -> dict[int, int]:
        """Number of senses → number of words."""
        return dict(sorted(Counter(len(word.thetas) for word in self.words).items()))


@torch.no_grad()
def senses(model: Any) -> Senses:
    """Return the senses of a model with a KerBS head."""
    head = sense_head(model)
    vectors_SD, thetas_S = head.senses_SD.detach().double().cpu(), head.theta_S.detach().double().cpu()
    results = []
    for word, (senses_J, is_sense_J) in enumerate(
        zip(head.table.senses_VJ, head.table.is_sense_VJ, strict=True)
    ):
        word_senses = senses_J[is_sense_J].tolist()
        units_JD = torch.nn.functional.normalize(vectors_SD[word_senses], dim=-1)
        above = torch.ones(len(word_senses), len(word_senses), dtype=torch.bool).triu(1)
        cosines = (units_JD @ units_JD.t())[above].tolist()
        results.append(
            WordSenses(
                word,
                tuple(thetas_S[word_senses].tolist()),
                tuple(vectors_SD[word_senses].norm(dim=-1).tolist()),
                max(cosines, default=None),
                min(cosines, default=None),
            )
        )
    results.sort(
        key=lambda word: (-len(word.thetas), 1.0 if word.farthest is None else word.farthest, word.word)
    )
    return Senses(tuple(results))


def sense_head(model: Any) -> Kerbs:
    """Return the KerBS head of a model; raise a TypeError for other models."""
    head: Kerbs | None = model.sense_head if declares_abilities(model) else None
    if head is None:
        raise TypeError(
            f'{shown(model)} does not have a KerBS head: train one with model.head.kind = "kerbs"'
        )
    return head


CHUNK = 256


@dataclass(frozen=True)
class Occurrence:
    """An occurrence of a word."""

    probability: float
    """Probability of the sense, given the word."""
    before: tuple[int, ...]
    """The last tokens before the word."""
    source: tuple[int, ...] = ()
    """Source of an encoder–decoder; empty for other models."""


@dataclass(frozen=True)
class WordUse:
    """Use of the senses of one word."""

    count: int
    shares: list[float]
    """Share of each sense; empty if the word does not occur."""
    occurrences: list[list[Occurrence]]
    """Occurrences of each sense, most probable first."""


@torch.no_grad()
def sense_contexts(
    model: Any, batches: Iterable[Batch], words: Collection[int], *, examples: int = 3, before: int = 8
) -> dict[int, WordUse]:
    """Measure the use of the senses of words in the targets of batches, for a model with a KerBS head."""
    head = sense_head(model)
    words = ids("words", words, empty=True)
    within("words", words, head.vocab_size)
    examples = as_int("examples", examples, at_least=0, advice="It is the number of contexts per sense.")
    before = as_int("before", before, at_least=1, advice="It is the number of tokens of a context.")
    if isinstance(batches, str | type) or not isinstance(batches, Iterable):
        raise TypeError(f"batches is {shown(batches)}, but must be an iterable of Batch")
    is_wanted = torch.zeros(head.vocab_size, dtype=torch.bool)
    is_wanted[list(words)] = True
    seen: dict[int, list[tuple[list[float], tuple[int, ...], tuple[int, ...]]]] = {word: [] for word in words}
    model.eval()
    for batch in batches:
        if not isinstance(batch, Batch):
            raise TypeError(f"batches holds {shown(batch)}, but must be an iterable of Batch")
        positions = (is_wanted[batch.targets_NU] & (batch.weights_NU > 0)).nonzero()
        if not len(positions):
            continue
        sources = batch.sources()
        hidden_MD = model.hidden_for(batch.to(head.theta_S.device))[positions[:, 0], positions[:, 1]]
        targets_M = batch.targets_NU[positions[:, 0], positions[:, 1]]
        shares = [
            shares_J
            for start in range(0, len(positions), CHUNK)
            for shares_J in _shares(head, hidden_MD[start : start + CHUNK], targets_M[start : start + CHUNK])
        ]
        for (row, column), word, shares_J in zip(positions.tolist(), targets_M.tolist(), shares, strict=True):
            context = batch.inputs_NT[row, max(0, column + 1 - before) : column + 1].tolist()
            seen[word].append((shares_J, tuple(context), tuple(sources[row])))
    return {
        word: _summarise(uses, int(head.table.is_sense_VJ[word].sum()), examples)
        for word, uses in seen.items()
    }


def _shares(head: Any, hidden_MD: Tensor, targets_M: Tensor) -> list[list[float]]:
    senses_MJ = head.table.senses_VJ[targets_M]
    scores_MS = kernel(hidden_MD, head.senses_SD, head.theta_S)
    own_MJ = scores_MS.gather(1, senses_MJ).masked_fill(~head.table.is_sense_VJ[targets_M], -torch.inf)
    shares: list[list[float]] = own_MJ.softmax(-1).tolist()
    return shares


def _summarise(
    uses: list[tuple[list[float], tuple[int, ...], tuple[int, ...]]], senses: int, examples: int
) -> WordUse:
    """Average the shares of each sense, and pick its most probable occurrences (the earlier of equals)."""
    occurrences = [
        [
            Occurrence(shares_J[j], before, source)
            for shares_J, before, source in sorted(uses, key=lambda use: -use[0][j])[:examples]
        ]
        for j in range(senses)
    ]
    means = [fsum(shares_J[j] for shares_J, _, _ in uses) / len(uses) for j in range(senses)] if uses else []
    return WordUse(len(uses), means, occurrences)
