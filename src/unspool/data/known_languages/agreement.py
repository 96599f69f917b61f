"""A language of long-range agreement: a verb has the number and gender of a noun that may be far before it.

    S_d → noun[a] M_d verb[a],   a ∈ {singular, plural} × genders
    M_d → ε | filler M_d | that S_{d+1} M_d     with probabilities 1 − f − e, f, e (1 − f, f, 0 at full depth)

Clauses nest: the next verb belongs to the innermost noun that still lacks one. The state is the stack of the
classes a of these nouns, and p(· | prefix) = p(· | stack) exactly. Nouns, verbs and fillers follow Zipf's
law.

Paper: Linzen, Dupoux and Goldberg 2016, section 2 (papers.bib: linzen2016assessing).

f: filler, e: embed.
Differs from the paper: the language is artificial, so that every probability is known; agreement may include
genders.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from unspool.arguments import Checked, integer, number
from unspool.data.known_languages.known_language import KnownLanguage, Probabilities
from unspool.data.known_languages.zipf_markov import zipf
from unspool.tokenization.vocabulary import EOS_ID, SPECIALS

THAT = "that"


@dataclass(frozen=True)
class OpenClauses:
    """State of a prefix: the classes of nouns still without a verb, and True if a noun is next."""

    open: tuple[int, ...] = ()
    noun_due: bool = True


@dataclass(frozen=True)
class Agreement(Checked, KnownLanguage[OpenClauses]):
    """Nouns (noun3-pl-a), fillers (so5), "that", and verbs that agree (verb2-pl-a)."""

    nouns: int = integer(20, at_least=1)
    """Number of noun stems; each has a form for every class."""
    verbs: int = integer(20, at_least=1)
    """Number of verb stems, with forms as nouns have."""
    fillers: int = integer(20, at_least=1)
    """Number of words between a noun and its verb that do not agree."""
    genders: int = integer(1, at_least=1, at_most=26)
    """Number of genders, named a to z; the classes are genders times singular and plural."""
    filler: float = number(0.6, at_least=0, below=1)
    """Probability of one more filler: 0.6 gives 1.5 of them on average."""
    embed: float = number(0.1, at_least=0, below=1)
    """Probability of an embedded clause, if the depth allows it."""
    depth: int = integer(2, at_least=1)
    """Maximum clauses that are open at once; 1: no nesting."""
    exponent: float = number(1.0, at_least=0)
    """Exponent of Zipf's law."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.filler + self.embed >= 1.0:
            raise ValueError(
                f"filler + embed is {self.filler + self.embed}: no probability is left for the verb; "
                "they must add up to less than 1"
            )

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Special tokens, then all forms from A to Z."""
        rows = [*self._forms("noun", self.nouns), *self._forms("verb", self.verbs), self._fillers, [THAT]]
        return (*SPECIALS, *sorted(word for row in rows for word in row))

    def start(self) -> OpenClauses:
        return OpenClauses()

    def after(self, state: OpenClauses, token: int) -> OpenClauses:
        """A noun opens a clause, its verb closes it."""
        if token in self._noun_class:
            return OpenClauses((*state.open, self._noun_class[token]), noun_due=False)
        if token == self._that:
            return OpenClauses(state.open, noun_due=True)
        return state if token in self._filler_ids else OpenClauses(state.open[:-1], noun_due=False)

    def probabilities(self, state: OpenClauses) -> Probabilities:
        row = np.zeros(self.vocab_size)
        if state.noun_due:
            row[self.noun_ids] = zipf(self.nouns, self.exponent) / len(self.noun_ids)
        elif not state.open:
            row[EOS_ID] = 1.0
        else:
            embed = self._embed(len(state.open))
            row[self._filler_ids] = self.filler * zipf(self.fillers, self.exponent)
            row[self._that] = embed
            row[self.verb_ids[state.open[-1]]] = (1.0 - self.filler - embed) * zipf(self.verbs, self.exponent)
        return row

    def sample(self, random: Random) -> tuple[int, ...]:
        return tuple(self._clause(random, depth=1))

    @cached_property
    def noun_ids(self) -> NDArray[np.int64]:
        """(classes, nouns): a class is a number and a gender."""
        return self._ids(self._forms("noun", self.nouns))

    @cached_property
    def verb_ids(self) -> NDArray[np.int64]:
        """(classes, verbs): after a prefix with open clauses, only row `state(prefix).open[-1]` is right."""
        return self._ids(self._forms("verb", self.verbs))

    def _clause(self, random: Random, depth: int) -> list[int]:
        of_class = random.randrange(len(self.noun_ids))
        sentence = [self._draw(random, self.noun_ids[of_class])]
        embed = self._embed(depth)
        while (choice := random.random()) < self.filler + embed:
            if choice < self.filler:
                sentence.append(self._draw(random, self._filler_ids))
            else:
                sentence += [self._that, *self._clause(random, depth + 1)]
        return [*sentence, self._draw(random, self.verb_ids[of_class])]

    def _draw(self, random: Random, ids: NDArray[np.int64]) -> int:
        (rank,) = random.choices(range(len(ids)), self._stems[: len(ids)])
        return int(ids[rank])

    def _embed(self, depth: int) -> float:
        return self.embed if depth < self.depth else 0.0

    def _forms(self, kind: str, stems: int) -> list[list[str]]:
        genders = [""] if self.genders == 1 else [f"-{chr(97 + number)}" for number in range(self.genders)]
        endings = [f"{number}{gender}" for number in ("sg", "pl") for gender in genders]
        return [[f"{kind}{stem}-{ending}" for stem in range(stems)] for ending in endings]

    @property
    def _fillers(self) -> list[str]:
        return [f"so{number}" for number in range(self.fillers)]

    def _ids(self, rows: list[list[str]]) -> NDArray[np.int64]:
        ids = {word: token for token, word in enumerate(self.words)}
        return np.array([[ids[word] for word in row] for row in rows])

    @cached_property
    def _stems(self) -> list[float]:
        """Unnormalised, so that the first few are Zipf's law of fewer ranks."""
        count = max(self.nouns, self.verbs, self.fillers)
        return [float(rank) ** -self.exponent for rank in range(1, count + 1)]

    @cached_property
    def _filler_ids(self) -> NDArray[np.int64]:
        return self._ids([self._fillers]).ravel()

    @cached_property
    def _that(self) -> int:
        return self.words.index(THAT)

    @cached_property
    def _noun_class(self) -> dict[int, int]:
        return {token: row for row, tokens in enumerate(self.noun_ids.tolist()) for token in tokens}
