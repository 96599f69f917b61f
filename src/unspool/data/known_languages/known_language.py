"""Known languages: sampled sentences with exact next-token probabilities, and their use as a model.

    p(y₁ … yₙ) = Π p(yᵢ | y₁ … yᵢ₋₁) · p(EOS | y₁ … yₙ)

The chain rule, with the ends of sentences: Bengio et al. 2003, section 1 (papers.bib: bengio2003neural).

A sentence is its words alone, as `encode` gives them: without BOS and without EOS. A prefix may begin with
BOS, which changes nothing. A language is defined by three functions of a state that summarises the prefix:
`start`, `after` and `probabilities`. `sample` is implemented separately, as the process that the equations
describe.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.arguments import Checked, number
from unspool.interfaces import Abilities, Step
from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.vocabulary import BOS_ID, EOS_ID, SPECIALS, train_words as word_vocabulary

S = TypeVar("S")
Probabilities = NDArray[np.float64]


class KnownLanguage(ABC, Generic[S]):
    """A distribution over sentences whose next-token probabilities are exact for every prefix."""

    bos: ClassVar[int] = BOS_ID
    eos: ClassVar[int] = EOS_ID

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The token of each id: the special ones first, as every vocabulary here, then words from A to Z."""

    @abstractmethod
    def start(self) -> S:
        """Return the state before the first word."""

    @abstractmethod
    def after(self, state: S, token: int) -> S:
        """Return the state after one more (possible) word."""

    @abstractmethod
    def probabilities(self, state: S) -> Probabilities:
        """Return the probability of every next token, (V,); exactly 0 for impossible ones."""

    @abstractmethod
    def sample(self, random: Random) -> tuple[int, ...]:
        """Sample a sentence."""

    @property
    def vocab_size(self) -> int:
        return len(self.words)

    def next(self, prefix: Sequence[int]) -> Probabilities:
        """p(· | prefix), (V,); a prefix that the language cannot speak is a ValueError."""
        return self.probabilities(self.state(prefix))

    def state(self, prefix: Sequence[int]) -> S:
        state, tokens = self.start(), self._without_bos(prefix)
        for at, token in enumerate(tokens):
            if not self.probability(state, token) > 0.0 or token == self.eos:
                last = self.vocab_size - 1
                word = self.words[token] if 0 <= token <= last else f"ids run to {last}"
                raise ValueError(
                    f"the prefix is impossible from position {at} on: token {token} ({word}) cannot come "
                    "there; give the words of a sentence, without its EOS"
                )
            state = self.after(state, token)
        return state

    def log_prob(self, sentence: Sequence[int]) -> float:
        """log p of the words and of the EOS after them; −∞ for what the language cannot speak."""
        state, total = self.start(), 0.0
        for token in self._without_bos(sentence):
            p = 0.0 if token == self.eos else self.probability(state, token)
            if p == 0.0:
                return -math.inf
            total += math.log(p)
            state = self.after(state, token)
        end = self.probability(state, self.eos)
        return total + math.log(end) if end > 0.0 else -math.inf

    def new_tokenizer(self) -> Tokenizer:
        """The tokenizer whose ids are those of the language."""
        return replace(word_vocabulary([" ".join(self.words[len(SPECIALS) :])]), add_bos=True)

    def spell(self, sentence: Sequence[int]) -> str:
        return " ".join(map(self.words.__getitem__, sentence))

    def probability(self, state: S, token: int) -> float:
        """The probability of one next token; 0 for an id that does not exist."""
        return float(self.probabilities(state)[token]) if 0 <= token < self.vocab_size else 0.0

    def _without_bos(self, tokens: Sequence[int]) -> Sequence[int]:
        return tokens[1:] if len(tokens) and tokens[0] == self.bos else tokens


@dataclass(frozen=True)
class FullSupport(Checked, KnownLanguage[S]):
    """A language in which every sentence is possible: each token is random noise with probability ε.

        p_ε(· | prefix) = (1 − ε) · p(· | state) + ε · u,   u uniform over the words and EOS

    A word that the language cannot say counts as noise: the state stays as it was. EOS always ends a
    sentence.
    """

    language: KnownLanguage[S]
    epsilon: float = number(0.01, above=0, below=1)

    @property
    def words(self) -> tuple[str, ...]:
        return self.language.words

    @cached_property
    def noise(self) -> Probabilities:
        """u, (V,)."""
        row = np.zeros(self.vocab_size)
        row[[self.eos, *range(len(SPECIALS), self.vocab_size)]] = 1.0
        return row / row.sum()

    def start(self) -> S:
        return self.language.start()

    def after(self, state: S, token: int) -> S:
        """As in the language; noise changes nothing."""
        return self.language.after(state, token) if self.language.probability(state, token) > 0.0 else state

    def probabilities(self, state: S) -> Probabilities:
        return (1 - self.epsilon) * self.language.probabilities(state) + self.epsilon * self.noise

    def sample(self, random: Random) -> tuple[int, ...]:
        sentence, state = list[int](), self.start()
        while True:
            row = self.noise if random.random() < self.epsilon else self.language.probabilities(state)
            (token,) = random.choices(range(self.vocab_size), row.tolist())
            if token == self.eos:
                return tuple(sentence)
            sentence.append(token)
            state = self.after(state, token)


@dataclass(frozen=True)
class TrueState:
    """The language's own state in every row; None once a row has ended."""

    rows: tuple[Any, ...]

    def select(self, rows_M: Tensor) -> TrueState:
        return TrueState(tuple(self.rows[row] for row in rows_M.tolist()))


@dataclass(frozen=True)
class TrueModel(Abilities):
    """The language as a perfect StepModel: shows the effects of a decoder alone. After EOS follows EOS.

    A prompt is a prefix of the language, with or without BOS.
    """

    language: KnownLanguage[Any]
    context = None

    @property
    def vocab_size(self) -> int:
        return self.language.vocab_size

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.language.new_tokenizer()

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, TrueState]:
        return self._predict(TrueState(tuple(self.language.state(prompt) for prompt in prompts)))

    def step(self, state: TrueState, tokens_N: Tensor) -> tuple[Step, TrueState]:
        rows = zip(state.rows, tokens_N.tolist(), strict=True)
        return self._predict(TrueState(tuple(self._after(row, token) for row, token in rows)))

    def _after(self, row: Any, token: int) -> Any:
        if row is None or token == self.language.eos:
            return None
        if not self.language.probability(row, token) > 0.0:
            raise ValueError(
                f"token {token} cannot come here: a transform or decoder has forced it, and the language has "
                "no probabilities after it"
            )
        return self.language.after(row, token)

    def _predict(self, state: TrueState) -> tuple[Step, TrueState]:
        rows_NV = np.stack([self._chances(row) for row in state.rows])
        return Step(torch.from_numpy(rows_NV).log().float()), state

    def _chances(self, row: Any) -> Probabilities:
        if row is not None:
            return self.language.probabilities(row)
        ended = np.zeros(self.vocab_size)
        ended[self.language.eos] = 1.0
        return ended
