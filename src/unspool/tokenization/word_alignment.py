"""Which tokens spell which words, where the places of the words in the text are known.

    tokens of word w = { t : token t spells a character of the text from begin_w to end_w }

Sub-word tokens as in Clark et al. 2019, §2 (papers.bib: clark2019what). A token may belong to two words,
where a tokenizer does not end one where a word ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unspool.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class AlignedWords:
    """A text as tokens, and the tokens of its words."""

    ids: tuple[int, ...]
    """The tokens as the model reads them: BOS first if it reads one, from right to left if it does."""
    tokens: tuple[tuple[int, ...], ...]
    """For each word, the places of its tokens."""


def align_words(
    text: str, places: Sequence[tuple[int, int]], codec: Tokenizer, *, bos: bool = True
) -> AlignedWords:
    """The tokens of words that stand at these places (begin, end) of a text; `bos`: the model reads BOS."""
    (encoded,) = codec.encode_batch([text])
    bare = codec.to_model_order(list(encoded.ids))
    ids = codec.with_bos(bare) if bos else bare
    spans = encoded.offsets[::-1] if codec.right_to_left else encoded.offsets
    found = []
    for begin, end in places:
        of_word = tuple(
            at + len(ids) - len(bare)
            for at, (start, stop) in enumerate(spans)
            if start < end and stop > begin and text[max(start, begin) : min(stop, end)].strip()
        )
        if not of_word:
            raise ValueError(
                f"the tokenizer has no token for the word {text[begin:end][:40]!r} of {text[:60]!r}"
            )
        found.append(of_word)
    return AlignedWords(tuple(ids), tuple(found))


_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class WordTokens:
    """A text as tokens, and where its words begin.

    Which token stands for each word of a text, where a tag belongs to a word and not to a token.

        word j = the j-th run of characters that are no white space
        first_j = min { t : token t spells a character of word j }

    The first token of a word stands for it, as in Devlin et al. 2019, §5.3 (papers.bib: devlin2019bert): what
    an encoder says of it has seen the others.
    """

    ids: list[int]
    """The tokens, without BOS."""
    words: list[str]
    firsts: list[int]
    """For each word, the place of its first token."""


def tokenize_words(lines: Sequence[str], text: Tokenizer) -> Iterator[WordTokens]:
    """Every line as tokens, with the words that white space separates; on all cores."""
    # Of the tokenizer itself, which knows the characters that each token spells.
    encoded = text.encode_batch(lines)
    for line, found in zip(lines, encoded, strict=True):
        words = list(_WORD.finditer(line))
        yield WordTokens(found.ids, [word.group() for word in words], _first_tokens(words, found.offsets))


def _first_tokens(words: Sequence[re.Match[str]], offsets: Sequence[tuple[int, int]]) -> list[int]:
    firsts, place = list[int](), 0
    for word in words:
        while place < len(offsets) and offsets[place][1] <= word.start():
            place += 1
        if place == len(offsets) or offsets[place][0] >= word.end():
            raise ValueError(f"the tokenizer has no token for the word {word.group()[:40]!r}: leave it out")
        firsts.append(place)
    return firsts
