"""Find the loop that a text has run into, exact or approximate, as it grows.

    x ends in a loop of period p  ⇔  x_t = x_{t−p} for the last max(r·p, s) tokens,   smallest such p

A model that sees a bounded past and takes its most probable token must repeat itself: there are only so many
pasts (Holtzman et al. 2020, §4, fig. 9; papers.bib: holtzman2020curious). r = `repeats`, s = `span`.

Only a period p with x_{T−p} = x_T can be one, so that a step costs no more than looking at the places where
the last token stood before.

An approximate loop never repeats exactly: numbered lists, other case, other numbers, three quarters of the
words the same. It is found by how much of the last W words repeats:

    coverage = share of the last W words in pairs (w_i, w_{i+g}), g ≤ G, that occur at least k times there
    approximate loop  ⇔  coverage ≥ θ

A pair is a 2-, 3- or 4-gram whose inner words may differ: it still repeats if one word of a phrase is
replaced. Words are case-folded, digits masked, and signs left out. θ is about the 99.9 % quantile of human
text; docs/diagnose.md has the rates. `RepeatCoverage` is incremental: a word costs a few dictionary
updates, whatever the length of the text. Symbols: W `WINDOW`, G `REACH`, k `PAIR_REPEATS`, θ `THRESHOLD`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unspool.decode.arguments import as_number, as_whole, function_of, shown
from unspool.decode.hypothesis import Hypothesis
from unspool.interfaces import StopCondition

WINDOW, LEAST_WORDS, REACH, PAIR_REPEATS, THRESHOLD = 96, 40, 3, 3, 0.62
"""Of a text of fewer words than the window all are looked at, if they are at least LEAST_WORDS."""
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]+|\d+")
"""A word, a number, or one character of Chinese or Japanese."""
LONGEST_WORD = 32
"""Characters of a word and its space at most, on average: more of a text is not read for its last words."""
STRIDE = 16
"""While a text grows, approximate loops are looked for after so many tokens."""
STOP_SPAN = 16
"""A loop must be this long before a text is stopped for it: a row of dots is no loop yet."""


@dataclass(frozen=True, slots=True)
class Loop:
    """x_t = x_{t − period} for every t from start + period to the end."""

    start: int
    """The first token of the part that is periodic."""
    period: int
    repeats: float
    """How often the period fits into that part."""


@dataclass(frozen=True, slots=True)
class ApproximateLoop:
    """Most of the last words were said several times in nearly the same way."""

    coverage: float
    """The share of the words that are in repeated pairs."""
    window: int
    """The words that were looked at."""


class RepeatCoverage:
    """The share of the last `window` words in pairs, at most `reach` apart, that occur `repeats` times."""

    def __init__(
        self,
        window: int = WINDOW,
        reach: int = REACH,
        repeats: int = PAIR_REPEATS,
        *,
        least: int = LEAST_WORDS,
    ) -> None:
        self.window = as_whole("window", window, at_least=2, advice="96 words is the default.")
        self.reach = as_whole("reach", reach, at_least=1, advice="It is the largest distance in a pair.")
        self.repeats = as_whole("repeats", repeats, at_least=2, advice="What comes once is no loop.")
        self.least = min(self.window, as_whole("least", least, at_least=1, advice="40 words is the default."))
        self._words: deque[Hashable] = deque()
        self._first = 0  # number of the first word in the window
        self._places: dict[tuple[Hashable, int, Hashable], deque[int]] = {}
        self._pairs: deque[int] = deque()  # how many repeated pairs each word is in
        self._covered = 0

    def push(self, word: Hashable) -> float:
        """Take one more word; return the coverage, 0 for fewer than `least` words."""
        if len(self._words) == self.window:
            self._drop()
        self._words.append(word)
        self._pairs.append(0)
        last = len(self._words) - 1
        for gap in range(1, min(self.reach, last) + 1):
            pair = (self._words[last - gap], gap, word)
            places = self._places.setdefault(pair, deque())
            places.append(self._first + last - gap)
            if len(places) == self.repeats:
                for place in places:
                    self._mark(place, gap, 1)
            elif len(places) > self.repeats:
                self._mark(places[-1], gap, 1)
        return self._covered / len(self._words) if len(self._words) >= self.least else 0.0

    def _drop(self) -> None:
        """Remove the first word of the window, and the pairs that begin with it."""
        for gap in range(1, min(self.reach, len(self._words) - 1) + 1):
            pair = (self._words[0], gap, self._words[gap])
            places = self._places[pair]
            if len(places) == self.repeats:
                for place in places:
                    self._mark(place, gap, -1)
            elif len(places) > self.repeats:
                self._mark(places[0], gap, -1)
            places.popleft()
            if not places:
                del self._places[pair]
        self._words.popleft()
        self._pairs.popleft()
        self._first += 1

    def _mark(self, place: int, gap: int, by: int) -> None:
        for at in (place - self._first, place - self._first + gap):
            before = self._pairs[at]
            self._pairs[at] = before + by
            self._covered += (before == 0) - (before + by == 0)


def loop_words(text: str | Sequence[Hashable]) -> list[Hashable]:
    """What approximate loops compare: the words of a text, case-folded, numbers as one "0", without signs.

    A list of strings is a text in pieces; a list of anything else (token ids) is taken as it is.
    """
    if not isinstance(text, str):
        if not all(isinstance(word, str) for word in text):
            return list(text)
        text = " ".join(map(str, text))
    found: list[Hashable] = []
    for word in WORDS.findall(text):
        if not word.isdecimal():
            found.append(word.casefold())
        elif not found or found[-1] != "0":
            found.append("0")
    return found


def find_approximate_loop(
    text: str | Sequence[Hashable],
    threshold: float = THRESHOLD,
    *,
    window: int = WINDOW,
    reach: int = REACH,
    repeats: int = PAIR_REPEATS,
    least: int = LEAST_WORDS,
) -> ApproximateLoop | None:
    """The approximate loop that a text (or a list of words or token ids) ends in; None if there is none.

    A text of fewer than `least` words has none. Give the text if there is one: token ids are compared as they
    are, so that "The" and "the" differ.
    """
    threshold = as_number("threshold", threshold, above=0, at_most=1, advice="It is a share of the window.")
    text = text.tolist() if hasattr(text, "tolist") else text
    is_list = isinstance(text, Sequence) and not isinstance(text, bytes)
    if not is_list or not all(isinstance(word, Hashable) for word in text):
        raise TypeError(f"text is {shown(text)}, but must be a string, or a list of words or token ids.")
    counter, coverage = RepeatCoverage(window, reach, repeats, least=least), 0.0
    words = loop_words(text[-LONGEST_WORD * counter.window :])[-counter.window :]
    for word in words:
        coverage = counter.push(word)
    return ApproximateLoop(coverage, len(words)) if coverage >= threshold else None


OnLoop = Literal["ignore", "stop", "stop_approximate"] | Callable[[Hypothesis, Loop], bool]


def find_loop(tokens: Sequence[Hashable], repeats: int = 3, span: int = 6) -> Loop | None:
    """The loop of smallest period that the tokens end in, from its earliest start; None where there is none.

    `repeats` times the period and `span` tokens must be periodic. The defaults are Holtzman et al.'s: a
    phrase of two tokens or more, three times (one token must come as often as such a phrase would).
    """
    repeats = as_whole("repeats", repeats, at_least=2, advice="What comes once is no loop.")
    span = as_whole("span", span, at_least=0, advice="0 asks for nothing but the repeats.")
    tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    if not isinstance(tokens, Sequence):
        raise TypeError(
            f"tokens is {shown(tokens)}, but must be a list or a tuple of tokens, in their order."
        )
    last = len(tokens) - 1
    for period in range(1, len(tokens) // repeats + 1):
        if tokens[last] != tokens[last - period]:
            continue
        needed = max(repeats * period, span)
        if needed > len(tokens):
            continue
        if tokens[-needed + period :] == tokens[-needed:-period]:
            start = len(tokens) - needed
            while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
                start -= 1
            return Loop(start, period, (len(tokens) - start) / period)
    return None


@dataclass(frozen=True)
class StopOnLoop:
    """Ends a hypothesis that loops, if `agrees` says so, and notes the loop."""

    agrees: Callable[[Hypothesis, Loop], bool]
    repeats: int = 3
    span: int = STOP_SPAN

    def __call__(self, hypothesis: Hypothesis) -> Hypothesis:
        """The hypothesis as it is, or ended."""
        loop = find_loop(hypothesis.tokens, self.repeats, self.span)
        if loop is None or not self.agrees(hypothesis, loop):
            return hypothesis
        return replace(hypothesis, finish_reason="loop", notes={**hypothesis.notes, "loop": loop})


@dataclass(frozen=True)
class StopOnApproximateLoop:
    """Ends a hypothesis that loops, exactly or approximately, and notes which."""

    exact: StopOnLoop
    stride: int = STRIDE

    def __call__(self, hypothesis: Hypothesis) -> Hypothesis:
        """The hypothesis as it is, or ended."""
        judged = self.exact(hypothesis)
        if judged.finish_reason is not None or len(hypothesis.tokens) % self.stride:
            return judged
        loop = find_approximate_loop(
            hypothesis.tokens if hypothesis.detokenizer is None else hypothesis.detokenizer.text
        )
        if loop is None:
            return hypothesis
        return replace(hypothesis, finish_reason="loop", notes={**hypothesis.notes, "approximate_loop": loop})


def stop_on_loops(on_loop: OnLoop) -> StopCondition | None:
    """What `generate(on_loop=…)` asks for."""
    if function_of(on_loop, 2):
        return StopOnLoop(on_loop)  # type: ignore[arg-type]
    exact = StopOnLoop(lambda hypothesis, loop: True)  # noqa: ARG005
    choices: dict[str, StopCondition | None] = {
        "ignore": None,
        "stop": exact,
        "stop_approximate": StopOnApproximateLoop(exact),
    }
    if not isinstance(on_loop, str) or on_loop not in choices:
        raise ValueError(
            f"on_loop={shown(on_loop)} is unknown: choose from {', '.join(map(repr, choices))}, "
            "or give a function of a hypothesis and its Loop that returns True to stop"
        )
    return choices[on_loop]
