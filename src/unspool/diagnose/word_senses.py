"""What the senses of a KerBS head have become: how many a word has, how wide they are, how far apart.

    width of ⟨i, j⟩: θ_ij,   angle of two senses of a word: cos(w_ij, w_ik)

Miao et al. 2019, §4 (papers.bib: miao2019kernelized): words with several meanings end with several senses,
words that occur in many kinds of context with a larger θ.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from unspool.decode.arguments import declares_abilities, shown
from unspool.protocols import SenseHead


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
