"""Which token stands for each word of a text, where a tag belongs to a word and not to a token.

    word j = the j-th run of characters that are no white space
    first_j = min { t : token t spells a character of word j }

The first token of a word stands for it, as in Devlin et al. 2019, §5.3 (papers.bib: devlin2019bert): what an
encoder says of it has seen the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unspool.text.codec import Codec

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class WordTokens:
    """A text as tokens, and where its words begin."""

    ids: list[int]
    """The tokens, without BOS."""
    words: list[str]
    firsts: list[int]
    """For each word, the place of its first token."""


def word_tokens(lines: Sequence[str], text: Codec) -> Iterator[WordTokens]:
    """Every line as tokens, with the words that white space separates; on all cores."""
    # Of the tokenizer itself, which knows the characters that each token spells.
    encoded = text.encode_batch(lines)
    for line, found in zip(lines, encoded, strict=True):
        words = list(_WORD.finditer(line))
        yield WordTokens(found.ids, [word.group() for word in words], _firsts(words, found.offsets))


def _firsts(words: Sequence[re.Match[str]], offsets: Sequence[tuple[int, int]]) -> list[int]:
    firsts, place = list[int](), 0
    for word in words:
        while place < len(offsets) and offsets[place][1] <= word.start():
            place += 1
        if place == len(offsets) or offsets[place][0] >= word.end():
            raise ValueError(f"the tokenizer has no token for the word {word.group()[:40]!r}: leave it out")
        firsts.append(place)
    return firsts
