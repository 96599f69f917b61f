"""A Markov language whose words follow Zipf's law and have few successors, which a hash determines.

    p(y | c) = (1 − q) · Σ_{k ≤ K(c)} w_k · 1[t(c, k) = y] / Σ_{k ≤ K(c)} w_k,   w_k = k^(−b)
    p(EOS | c) = q, but 0 before the first word

c is the last word (order 1) or the last two (order 2), with BOS before the first. t(c, k) is the Zipf
quantile of a hash of (seed, c, k), so that a word's probability is Zipf's, averaged over all contexts. K(c)
is hashed, too, and log-uniform from 1 to `branching` (at the start of a sentence `branching`): many contexts
have one or two successors, some have many. No table is kept.

Papers: Shannon 1948, section 3 (papers.bib: shannon1948mathematical), for words that depend on the last one
or two; Zipf 1949 (papers.bib: zipf1949human); the hash is the finaliser of Java's SplitMix64, a generator of
Steele, Lea and Flood 2014 (papers.bib: steele2014fast).

q: stop, b: decay.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unspool.arguments import Checked, integer, number
from unspool.data.known_languages.known_language import KnownLanguage, Probabilities
from unspool.data.random_numbers import GOLDEN, MASK, mix
from unspool.tokenization.vocabulary import BOS_ID, EOS_ID, SPECIALS


def zipf(n: int, exponent: float = 1.0) -> NDArray[np.float64]:
    """Zipf's law: the probabilities of ranks 1 … n, (n,).

        p(r) = r^(−a) / Σ_{q ≤ n} q^(−a)

    Zipf 1949, chapter 2 (papers.bib: zipf1949human), where a = 1.
    """
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def cumulative_sums(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ_{q ≤ r} p(q), exactly 1 at the end: a number below 1 always falls on some rank."""
    sums: NDArray[np.float64] = shares.cumsum()
    sums[-1] = 1.0
    return sums


FIRST_WORD_ID = len(SPECIALS)


@dataclass(frozen=True)
class ZipfMarkov(Checked, KnownLanguage[tuple[int, ...]]):
    """Words w0 … of a Zipfian Markov chain. The state is the context."""

    word_count: int = integer(1_000, at_least=1)
    """Number of words."""
    order: Literal[1, 2] = integer(2, at_least=1, at_most=2)
    """Number of words in a context."""
    branching: int = integer(32, at_least=1)
    """Maximum words that can follow a context."""
    exponent: float = number(1.0, at_least=0)
    """Exponent of Zipf's law."""
    decay: float = number(1.0, at_least=0)
    """Exponent of the weights of the following words."""
    stop: float = number(0.1, above=0, at_most=1, advice="With 0 no sentence would end.")
    """The probability that the sentence ends after a word: it has 1 / stop words on average."""
    seed: int = 0
    """Seed of the language; sentences are drawn with another one."""

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Special tokens, then w0 … by falling frequency."""
        digits = len(str(self.word_count - 1))
        return (*SPECIALS, *(f"w{rank:0{digits}}" for rank in range(self.word_count)))

    def start(self) -> tuple[int, ...]:
        """`order` times BOS."""
        return (BOS_ID,) * self.order

    def after(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        return (*state, token)[-self.order :]

    def probabilities(self, state: tuple[int, ...]) -> Probabilities:
        return self.rows(np.array([state]))[0]

    def rows(self, contexts_NC: NDArray[np.integer]) -> Probabilities:
        """The rows of many contexts of `order` tokens, (N, V); also of those that no sentence reaches."""
        tokens_NK, p_NK = self.followers(contexts_NC)
        rows_NV = np.zeros((len(tokens_NK), self.vocab_size))
        np.add.at(rows_NV, (np.arange(len(tokens_NK))[:, None], tokens_NK), p_NK)
        rows_NV[:, EOS_ID] = self._stops(contexts_NC)
        return rows_NV

    def followers(self, contexts_NC: NDArray[np.integer]) -> tuple[NDArray[np.int64], Probabilities]:
        """Return possible next words and their probabilities, (N, branching) each; a word may occur twice."""
        hash_N = self._hash([contexts_NC[:, at].astype(np.uint64) for at in range(self.order)])
        count_N = 1 + np.searchsorted(self._counts, _to_uniform(mix(hash_N)), side="right")
        count_N[contexts_NC[:, -1] == BOS_ID] = self.branching
        ranks = np.arange(self.branching)
        hash_NK = mix(hash_N[:, None] + (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN))
        tokens_NK = FIRST_WORD_ID + np.searchsorted(self._quantiles, _to_uniform(hash_NK), side="right")
        weights_NK = np.where(ranks < count_N[:, None], self._weights, 0.0)
        weights_NK *= ((1.0 - self._stops(contexts_NC)) / weights_NK.sum(axis=1))[:, None]
        return tokens_NK, weights_NK

    def sample(self, random: Random) -> tuple[int, ...]:
        """Draw word after word: the number of possible ones, one of them, and whether the sentence ends."""
        counts, sums, quantiles = self._lists
        sentence: list[int] = []
        context = self.start()
        while True:
            hashed = self._hash(context)
            count = 1 + bisect_right(counts, _to_uniform(mix(hashed))) if sentence else self.branching
            rank = bisect_right(sums, random.random() * sums[count - 1], 0, count - 1)
            drawn = mix((hashed + (rank + 1) * GOLDEN) & MASK)
            sentence.append(FIRST_WORD_ID + bisect_right(quantiles, _to_uniform(drawn)))
            if random.random() < self.stop:
                return tuple(sentence)
            context = self.after(context, sentence[-1])

    def mean_length(self) -> float:
        return 1.0 / self.stop

    def _stops(self, contexts_NC: NDArray[np.integer]) -> Probabilities:
        return np.where(contexts_NC[:, -1] == BOS_ID, 0.0, self.stop)

    def _hash(self, context: Sequence[Any]) -> Any:
        hashed: Any = mix(self.seed & MASK)
        for token in context:
            hashed = mix((hashed ^ token) + GOLDEN & MASK)
        return hashed

    @cached_property
    def _quantiles(self) -> Probabilities:
        return cumulative_sums(zipf(self.word_count, self.exponent))

    @cached_property
    def _weights(self) -> Probabilities:
        return zipf(self.branching, self.decay)

    @cached_property
    def _counts(self) -> Probabilities:
        """Thresholds of u at which K(c) = ⌊(branching + 1)^u⌋ grows by one."""
        return np.log(np.arange(2, self.branching + 1)) / math.log(self.branching + 1)

    @cached_property
    def _lists(self) -> tuple[list[float], list[float], list[float]]:
        return self._counts.tolist(), self._weights.cumsum().tolist(), self._quantiles.tolist()


def _to_uniform(hashed: Any) -> Any:
    """A number in [0, 1) from the first 53 bits."""
    return (hashed >> 11) * 2.0**-53
