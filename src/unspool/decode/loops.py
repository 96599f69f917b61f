"""Find exact and approximate loops at the end of a text, and stop on them.

    x ends in a loop of period p  ⇔  x_t = x_{t−p} for the last max(r·p, s) tokens,   smallest such p

A greedy model with a bounded context must loop in the end, because the number of contexts is finite (Holtzman
et al. 2020, §4, fig. 9; papers.bib: holtzman2020curious). r = `repeats`, s = `span`. Only periods p with
x_{T−p} = x_T are checked.

An approximate loop does not repeat exactly: numbered lists, other case, other numbers, a few other words. It
is found by how much of the last W words repeats:

    coverage = share of the last W words in pairs (w_i, w_{i+g}), g ≤ G, that occur at least k times there
    approximate loop  ⇔  coverage ≥ θ

A pair is a 2-, 3- or 4-gram whose inner words may differ: it still repeats if one word of a phrase is
replaced. Words are case-folded, digits masked, and punctuation is ignored. θ is about the 99.9 % quantile of
human text; docs/diagnose.md has the rates. Symbols: W `WINDOW`, G `REACH`, k `PAIR_REPEATS`, θ `THRESHOLD`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unspool.arguments import as_int, as_number, function_of, shown
from unspool.decode.hypothesis import Hypothesis
from unspool.interfaces import StopCondition

WINDOW, MIN_WORDS, REACH, PAIR_REPEATS, THRESHOLD = 96, 40, 3, 3, 0.62
"""A text shorter than the window is checked if it has at least MIN_WORDS words."""
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]+|\d+")
"""A word, a number, or one character of Chinese or Japanese."""
MAX_WORD_CHARACTERS = 32
"""Upper bound of the mean characters per word, which limits the text that is read."""
STRIDE = 16
"""Tokens between two checks for approximate loops."""
STOP_SPAN = 16
"""Minimum length of a loop that stops a text; a few dots are not a loop."""


@dataclass(frozen=True, slots=True)
class Loop:
    """x_t = x_{t − period} for every t from start + period to the end."""

    start: int
    """Index of the first token of the periodic part."""
    period: int
    repeats: float
    """Length of that part divided by the period."""


@dataclass(frozen=True, slots=True)
class ApproximateLoop:
    """Most of the last words repeat approximately."""

    coverage: float
    """Share of the words that are in repeated pairs."""
    window: int
    """Number of words that were checked."""


def repeat_coverage(words: Sequence[Hashable], reach: int = REACH, repeats: int = PAIR_REPEATS) -> float:
    """Share of the words in pairs, at most `reach` apart, that occur at least `repeats` times."""
    places: dict[tuple[Hashable, int, Hashable], list[int]] = {}
    for gap in range(1, reach + 1):
        for at, pair in enumerate(zip(words, words[gap:], strict=False)):
            places.setdefault((pair[0], gap, pair[1]), []).append(at)
    repeated = [(starts, gap) for (_, gap, _), starts in places.items() if len(starts) >= repeats]
    covered = {place for starts, gap in repeated for at in starts for place in (at, at + gap)}
    return len(covered) / max(1, len(words))


def loop_words(text: str | Sequence[Hashable]) -> list[Hashable]:
    """The words of a text for approximate loops: case-folded, numbers as "0", without punctuation.

    A list of strings is joined; a list of anything else (token ids) is returned as it is.
    """
    if not isinstance(text, str):
        if not all(isinstance(word, str) for word in text):
            return list(text)
        text = " ".join(map(str, text))
    words: list[Hashable] = []
    for word in WORDS.findall(text):
        if not word.isdecimal():
            words.append(word.casefold())
        elif not words or words[-1] != "0":
            words.append("0")
    return words


def find_approximate_loop(
    text: str | Sequence[Hashable], threshold: float = THRESHOLD
) -> ApproximateLoop | None:
    """The approximate loop that a text (or a list of words or token ids) ends in; None if there is none.

    Prefer the text: for token ids, "The" and "the" differ.
    """
    threshold = as_number("threshold", threshold, above=0, at_most=1, advice="It is a share of the window.")
    text = text.tolist() if hasattr(text, "tolist") else text
    is_list = isinstance(text, Sequence) and not isinstance(text, bytes)
    if not is_list or not all(isinstance(word, Hashable) for word in text):
        raise TypeError(f"text is {shown(text)}, but must be a string, or a list of words or token ids.")
    words = loop_words(text[-MAX_WORD_CHARACTERS * WINDOW :])[-WINDOW:]
    coverage = repeat_coverage(words) if len(words) >= MIN_WORDS else 0.0
    return ApproximateLoop(coverage, len(words)) if coverage >= threshold else None


OnLoop = Literal["ignore", "stop", "stop_approximate"] | Callable[[Hypothesis, Loop], bool]


def find_loop(tokens: Sequence[Hashable], repeats: int = 3, span: int = 6) -> Loop | None:
    """The loop of smallest period at the end of the tokens, from its earliest start; None if there is none.

    At least `repeats` periods and `span` tokens must be periodic. The defaults are those of Holtzman et al.:
    a phrase of at least two tokens, three times (a single token six times).
    """
    repeats = as_int("repeats", repeats, at_least=2, advice="A loop repeats at least twice.")
    span = as_int("span", span, at_least=0, advice="0 requires only the repeats.")
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
    """A stop condition: end a hypothesis in a loop, and note the loop.

    An exact loop must satisfy `agrees`, too; approximate loops are looked for if `approximate`.
    """

    agrees: Callable[[Hypothesis, Loop], bool] = lambda hypothesis, loop: True  # noqa: ARG005
    approximate: bool = False

    def __call__(self, hypothesis: Hypothesis) -> Hypothesis:
        loop = find_loop(hypothesis.tokens, span=STOP_SPAN)
        if loop is not None and self.agrees(hypothesis, loop):
            return replace(hypothesis, finish_reason="loop", notes={**hypothesis.notes, "loop": loop})
        if not self.approximate or len(hypothesis.tokens) % STRIDE:
            return hypothesis
        detokenizer = hypothesis.detokenizer
        near = find_approximate_loop(hypothesis.tokens if detokenizer is None else detokenizer.text)
        if near is None:
            return hypothesis
        return replace(hypothesis, finish_reason="loop", notes={**hypothesis.notes, "approximate_loop": near})


def stop_on_loops(on_loop: OnLoop) -> StopCondition | None:
    if function_of(on_loop, 2):
        return StopOnLoop(on_loop)  # type: ignore[arg-type]
    choices: dict[str, StopCondition | None] = {
        "ignore": None,
        "stop": StopOnLoop(),
        "stop_approximate": StopOnLoop(approximate=True),
    }
    if not isinstance(on_loop, str) or on_loop not in choices:
        raise ValueError(
            f"on_loop={shown(on_loop)} is unknown: choose from {', '.join(map(repr, choices))}, "
            "or give a function of a hypothesis and its Loop that returns True to stop"
        )
    return choices[on_loop]
