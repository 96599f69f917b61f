"""A language of words with several senses: a hidden Markov chain of senses, each written as its word.

    p(s′ | s) = (1 − q)·[(1 − δ)·near(s′ | s) + δ·far(s′ | s)],   p(EOS | s) = q,   y_t = the word of s_t
    b_t(s) ∝ 1[s is a sense of y_t] · Σ_{s⁻} b_{t−1}(s⁻) p(s | s⁻)
    p(y | y₁ … y_t) = Σ_s b_t(s) Σ_{s′ a sense of y} p(s′ | s)

Every word has one to `most_senses` senses, each in another topic. A sense is followed by a few senses of its
topic (near) or a few of other topics (far), with Zipfian weights. A word with two senses therefore occurs in
two kinds of context, and the next word depends on its sense. The forward algorithm computes b, the belief in
each sense.

Paper: Rabiner 1989, section III.A, equations 19–21 (papers.bib: rabiner1989tutorial), with b = α normalised.

q: stop, δ: drift.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from unspool.arguments import Checked, integer, number
from unspool.data.known_languages.known_language import KnownLanguage, Probabilities
from unspool.data.known_languages.zipf_markov import cumulative_sums, zipf
from unspool.tokenization.vocabulary import EOS_ID, SPECIALS

FIRST_WORD_ID = len(SPECIALS)


@dataclass(frozen=True, eq=False)
class Belief:
    """Probabilities of the senses of the last word; before the first word, of all possible first senses."""

    senses: NDArray[np.int64]
    probabilities: Probabilities
    started: bool


@dataclass(frozen=True)
class SenseChain(Checked, KnownLanguage[Belief]):
    """Words w0 … with one to four senses. Senses have numbers; `forms` and `topic_of` are indexed by them."""

    word_count: int = integer(200, at_least=1)
    """Number of words."""
    topics: int = integer(8, at_least=1)
    """Number of topics; a sense belongs to one."""
    most_senses: int = integer(4, at_least=1)
    """Maximum senses of a word."""
    near: int = integer(8, at_least=1)
    """Maximum senses of the same topic that may follow a sense."""
    far: int = integer(4, at_least=1)
    """Maximum senses of other topics that may follow a sense."""
    drift: float = number(0.1, at_least=0, below=1)
    """The probability of leaving the topic."""
    decay: float = number(1.0, at_least=0)
    """Exponent of the Zipfian weights of the following senses."""
    stop: float = number(0.1, above=0, at_most=1, advice="With 0 no sentence would end.")
    """The probability that the sentence ends after a word: it has 1 / stop words on average."""
    seed: int = 0
    """Seed of the language; sentences are drawn with another one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_senses > self.topics:
            raise ValueError(
                f"most_senses is {self.most_senses}, but each sense of a word is in another of the "
                f"{self.topics} topics; take more topics or fewer senses"
            )
        if self.word_count < self.topics:
            raise ValueError(f"{self.word_count} words cannot fill {self.topics} topics; take more words")

    @cached_property
    def words(self) -> tuple[str, ...]:
        digits = len(str(self.word_count - 1))
        return (*SPECIALS, *(f"w{number:0{digits}}" for number in range(self.word_count)))

    def start(self) -> Belief:
        """Every sense is equally probable at first."""
        count = len(self.forms)
        return Belief(np.arange(count), np.full(count, 1.0 / count), started=False)

    def after(self, state: Belief, token: int) -> Belief:
        """One step of the forward algorithm."""
        senses, probabilities = self._coming(state)
        heard = self.forms[senses] == token
        meant, inverse = np.unique(senses[heard], return_inverse=True)
        sums = np.bincount(inverse, weights=probabilities[heard], minlength=len(meant))
        return Belief(meant, sums / sums.sum(), started=True)

    def probabilities(self, state: Belief) -> Probabilities:
        """The probabilities of all senses that may come next, summed by word."""
        senses, probabilities = self._coming(state)
        heard = np.bincount(self.forms[senses], weights=probabilities, minlength=self.vocab_size)
        row: Probabilities = heard.astype(np.float64, copy=False)
        row[EOS_ID] = self.stop if state.started else 0.0
        return row

    def sample(self, random: Random) -> tuple[int, ...]:
        return tuple(int(self.forms[sense]) for sense in self.sample_senses(random))

    def sample_senses(self, random: Random) -> tuple[int, ...]:
        """The senses of a sentence: its words are their `forms`."""
        following, sums = self._lists
        senses = [random.randrange(len(self.forms))]
        while random.random() >= self.stop:
            sense = senses[-1]
            senses.append(following[sense][bisect_right(sums[sense], random.random())])
        return tuple(senses)

    @property
    def forms(self) -> NDArray[np.int64]:
        """The word of each sense, (senses,)."""
        return self._senses[0]

    @property
    def topic_of(self) -> NDArray[np.int64]:
        """The topic of each sense, (senses,)."""
        return self._senses[1]

    def _coming(self, state: Belief) -> tuple[NDArray[np.int64], Probabilities]:
        """Senses that may come next and their probabilities; a sense may occur several times."""
        if not state.started:
            return state.senses, state.probabilities
        following, probabilities = self._following
        shares = state.probabilities[:, None] * probabilities[state.senses] * (1.0 - self.stop)
        return following[state.senses].ravel(), shares.ravel()

    @cached_property
    def _senses(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        random = Random(f"senses of {self.seed}")
        forms, topics = [], []
        for word in range(self.word_count):
            count = random.randint(1, self.most_senses)
            # The first sense goes round the topics, so that none is empty.
            others = [topic for topic in range(self.topics) if topic != word % self.topics]
            for topic in (word % self.topics, *random.sample(others, count - 1)):
                forms.append(FIRST_WORD_ID + word)
                topics.append(topic)
        return np.array(forms), np.array(topics)

    @cached_property
    def _following(self) -> tuple[NDArray[np.int64], Probabilities]:
        """Senses that may follow each sense, and their probabilities: (senses, near + far), padded with 0."""
        random = Random(f"what follows in {self.seed}")
        everything = range(len(self.forms))
        inside = [[s for s in everything if self.topic_of[s] == topic] for topic in range(self.topics)]
        outside = [[s for s in everything if self.topic_of[s] != topic] for topic in range(self.topics)]
        following = np.zeros((len(everything), self.near + self.far), dtype=np.int64)
        probabilities = np.zeros((len(everything), self.near + self.far))
        drift = self.drift if self.topics > 1 else 0.0
        for sense in everything:
            topic = self.topic_of[sense]
            parts = ((inside[topic], self.near, 0, 1.0 - drift), (outside[topic], self.far, self.near, drift))
            for pool, most, at, share in parts:
                count = min(most, len(pool))
                if count:
                    following[sense, at : at + count] = random.sample(pool, count)
                    probabilities[sense, at : at + count] = share * zipf(count, self.decay)
        return following, probabilities

    @cached_property
    def _lists(self) -> tuple[list[list[int]], list[list[float]]]:
        following, probabilities = self._following
        possible = [row > 0.0 for row in probabilities]
        return (
            [row[kept].tolist() for row, kept in zip(following, possible, strict=True)],
            [cumulative_sums(row[kept]).tolist() for row, kept in zip(probabilities, possible, strict=True)],
        )
