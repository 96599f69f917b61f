"""A language of long-range agreement: a verb has the number and gender of a noun that may be far behind it.

    S_d → noun[a] M_d verb[a],   a ∈ {singular, plural} × genders
    M_d → ε | filler M_d | that S_{d+1} M_d     with probabilities 1 − f − e, f, e (1 − f, f, 0 at full depth)

Clauses nest, so that the verb that comes next belongs to the innermost noun still without one: the state is
the stack of their classes a, and p(· | prefix) = p(· | stack) exactly. Nouns, verbs and fillers follow Zipf's
law.

Paper: Linzen, Dupoux and Goldberg 2016, section 2 (papers.bib: linzen2016assessing).

f: filler, e: embed.
Differs from the paper: the language is made, not found, so that every probability is known; agreement may
have genders, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from unspool.data.known_languages.known_language import KnownLanguage, Probabilities, check_count, check_share
from unspool.data.known_languages.zipf_markov import zipf
from unspool.tokenization.vocabulary import EOS_ID, SPECIALS

THAT = "that"


@dataclass(frozen=True)
class OpenClauses:
    """State of a prefix: the classes of nouns still without a verb, and True if a noun is next."""

    open: tuple[int, ...] = ()
    noun_due: bool = True


@dataclass(frozen=True)
class Agreement(KnownLanguage[OpenClauses]):
    """Nouns (noun3-pl-a), fillers (so5), "that", and verbs that agree (verb2-pl-a)."""

    nouns: int = 20
    """Stems; each has a form for every class."""
    verbs: int = 20
    """Stems, with forms as nouns have."""
    fillers: int = 20
    """Words that stand between a noun and its verb, and agree with nothing."""
    genders: int = 1
    """Times two numbers: the classes."""
    filler: float = 0.6
    """The probability of one more filler: 1.5 of them stand between a noun and what follows them."""
    embed: float = 0.1
    """The probability of a clause inside, where the depth allows it."""
    depth: int = 2
    """The most clauses that are open at once; 1: nothing is nested."""
    exponent: float = 1.0
    """Of Zipf's law."""

    def __post_init__(self) -> None:
        for name in ("nouns", "verbs", "fillers", "genders", "depth"):
            check_count(name, getattr(self, name))
        if self.genders > 26:
            raise ValueError(f"genders is {self.genders}; they are named by the letters a to z: at most 26")
        check_share("filler", self.filler)
        check_share("embed", self.embed)
        if self.filler + self.embed >= 1.0:
            raise ValueError(
                f"filler + embed is {self.filler + self.embed}: no probability is left for the verb; "
                "they must add up to less than 1"
            )
        zipf(1, self.exponent)

    @property
    def classes(self) -> int:
        """Numbers times genders."""
        return 2 * self.genders

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Special tokens, then all forms from A to Z."""
        forms = [*self._forms("noun", self.nouns).ravel(), *self._forms("verb", self.verbs).ravel()]
        return (*SPECIALS, *sorted(map(str, [*forms, *self._fillers(), THAT])))

    def start(self) -> OpenClauses:
        """A noun comes first."""
        return OpenClauses()

    def after(self, state: OpenClauses, token: int) -> OpenClauses:
        """A noun opens a clause, its verb closes it."""
        if token in self._noun_class:
            return OpenClauses((*state.open, self._noun_class[token]), noun_due=False)
        if token == self._that:
            return OpenClauses(state.open, noun_due=True)
        return state if token in self._filler_set else OpenClauses(state.open[:-1], noun_due=False)

    def chances(self, state: OpenClauses) -> Probabilities:
        """The rule that the stack allows."""
        row = np.zeros(self.vocab_size)
        if state.noun_due:
            row[self.noun_ids] = zipf(self.nouns, self.exponent) / self.classes
        elif not state.open:
            row[EOS_ID] = 1.0
        else:
            embed = self._embed(len(state.open))
            row[self._filler_ids] = self.filler * zipf(self.fillers, self.exponent)
            row[self._that] = embed
            row[self.verb_ids[state.open[-1]]] = (1.0 - self.filler - embed) * zipf(self.verbs, self.exponent)
        return row

    def sample(self, random: Random) -> tuple[int, ...]:
        """The grammar's rules, from the top."""
        return tuple(self._clause(random, depth=1))

    def mean_length(self) -> float:
        """Words in a sentence, on average."""
        clause = 0.0
        for depth in range(self.depth, 0, -1):
            embed = self._embed(depth)
            clause = 2.0 + (self.filler + embed * (1.0 + clause)) / (1.0 - self.filler - embed)
        return clause

    def entropy(self) -> float:
        """Of a whole sentence, in nats: H_d = H(noun) + [H(choice) + f·H(filler) + e·H_{d+1}]/v + H(verb)."""
        noun, verb, filler = (
            _entropy(zipf(n, self.exponent)) for n in (self.nouns, self.verbs, self.fillers)
        )
        clause = 0.0
        for depth in range(self.depth, 0, -1):
            embed = self._embed(depth)
            close = 1.0 - self.filler - embed
            choice = _entropy(np.array([self.filler, embed, close]))
            clause = (
                math.log(self.classes)
                + noun
                + (choice + self.filler * filler + embed * clause) / close
                + verb
            )
        return clause

    @cached_property
    def noun_ids(self) -> NDArray[np.int64]:
        """(classes, nouns)."""
        return self._ids(self._forms("noun", self.nouns))

    @cached_property
    def verb_ids(self) -> NDArray[np.int64]:
        """(classes, verbs): after a prefix with open clauses, only row `state(prefix).open[-1]` is right."""
        return self._ids(self._forms("verb", self.verbs))

    def _clause(self, random: Random, depth: int) -> list[int]:
        of_class = random.randrange(self.classes)
        said = [self._draw(random, self.noun_ids[of_class])]
        embed = self._embed(depth)
        while (choice := random.random()) < self.filler + embed:
            if choice < self.filler:
                said.append(self._draw(random, self._filler_ids))
            else:
                said += [self._that, *self._clause(random, depth + 1)]
        return [*said, self._draw(random, self.verb_ids[of_class])]

    def _draw(self, random: Random, ids: NDArray[np.int64]) -> int:
        (rank,) = random.choices(range(len(ids)), self._stems[: len(ids)])
        return int(ids[rank])

    def _embed(self, depth: int) -> float:
        return self.embed if depth < self.depth else 0.0

    def _forms(self, kind: str, stems: int) -> NDArray[np.str_]:
        endings = [f"{number}-{chr(97 + it)}" for number in ("sg", "pl") for it in range(self.genders)]
        if self.genders == 1:
            endings = ["sg", "pl"]
        return np.array([[f"{kind}{stem}-{ending}" for stem in range(stems)] for ending in endings])

    def _fillers(self) -> list[str]:
        return [f"so{it}" for it in range(self.fillers)]

    def _ids(self, names: NDArray[np.str_]) -> NDArray[np.int64]:
        ids = {word: token for token, word in enumerate(self.words)}
        return np.array([[ids[name] for name in row] for row in names.tolist()])

    @cached_property
    def _stems(self) -> list[float]:
        """Unnormalised, so that the first few are Zipf's law of fewer ranks."""
        return [
            float(rank) ** -self.exponent for rank in range(1, max(self.nouns, self.verbs, self.fillers) + 1)
        ]

    @cached_property
    def _filler_ids(self) -> NDArray[np.int64]:
        return np.array([self.words.index(name) for name in self._fillers()])

    @cached_property
    def _that(self) -> int:
        return self.words.index(THAT)

    @cached_property
    def _filler_set(self) -> frozenset[int]:
        return frozenset(self._filler_ids.tolist())

    @cached_property
    def _noun_class(self) -> dict[int, int]:
        return {token: row for row, tokens in enumerate(self.noun_ids.tolist()) for token in tokens}


def _entropy(p: Probabilities) -> float:
    kept = p[p > 0.0]
    return float(-(kept * np.log(kept)).sum())
