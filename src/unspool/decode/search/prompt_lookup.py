"""Prompt lookup: draft the tokens that followed an earlier occurrence of the last n-gram.

    draft = y_j, y_{j+1}, …   where  y_{j−n} … y_{j−1} = y_{t−n} … y_{t−1},  j < t

y_1 … y_{t−1} are the prompt and the text so far. n is the largest size, from `longest` down to `shortest`,
whose last n-gram occurred before, and j follows its latest earlier occurrence. A draft that reaches the end
of the text continues with its own first tokens, so it continues a loop. Saxena 2023
(papers.bib: saxena2023prompt).

Prompt lookup needs no draft model. It is meant for texts that repeat their prompt, such as summaries, edited
code and quotations. A lookup takes constant time, because a table has the last place of every n-gram.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from unspool.arguments import as_int, set_fields


@dataclass(frozen=True, init=False)
class PromptLookup:
    """Speculative(PromptLookup(), length=8): drafts from the prompt and the text, without a second model."""

    longest: int = 3
    shortest: int = 2

    def __init__(self, longest: int = 3, shortest: int = 2) -> None:
        longest = as_int("PromptLookup.longest", longest, at_least=1, at_most=MAX_NGRAM)
        shortest = as_int("PromptLookup.shortest", shortest, at_least=1, at_most=longest)
        set_fields(self, longest=longest, shortest=shortest)

    def index(self, tokens: Sequence[int]) -> NgramIndex:
        """The table of a text."""
        found = NgramIndex(range(self.longest, self.shortest - 1, -1))
        found.extend(tokens)
        return found


MAX_NGRAM = 32


@dataclass(eq=False)
class NgramIndex:
    """Where each n-gram of a text ended last, except at the end of the text."""

    sizes: Sequence[int]
    """Values of n, the first ones preferred."""
    text: list[int] = field(default_factory=list)
    _ends: dict[tuple[int, ...], int] = field(default_factory=dict)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the text."""
        for token in tokens:
            end = len(self.text)
            self._ends.update((tuple(self.text[end - n :]), end) for n in self.sizes if n <= end)
            self.text.append(token)

    def draft(self, count: int) -> list[int]:
        """At most `count` tokens that followed the last n-gram before; none if it is new."""
        length = len(self.text)
        found = (self._ends.get(tuple(self.text[length - n :])) for n in self.sizes if n <= length)
        begin = next((end for end in found if end is not None), None)
        tokens: list[int] = []
        for place in range(begin or 0, 0 if begin is None else begin + count):
            tokens.append(self.text[place] if place < length else tokens[place - length])
        return tokens
