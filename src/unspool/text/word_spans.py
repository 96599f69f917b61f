"""Which tokens spell which words, where the places of the words in the text are known.

    tokens of word w = { t : token t spells a character of the text from begin_w to end_w }

Sub-word tokens as in Clark et al. 2019, §2 (papers.bib: clark2019what). A token may belong to two words,
where a tokenizer does not end one where a word ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unspool.text.codec import Codec


@dataclass(frozen=True)
class SpelledWords:
    """A text as tokens, and the tokens of its words."""

    ids: tuple[int, ...]
    """The tokens, BOS first where the tokenizer writes it."""
    tokens: tuple[tuple[int, ...], ...]
    """For each word, the places of its tokens."""


def spelled_words(text: str, places: Sequence[tuple[int, int]], codec: Codec) -> SpelledWords:
    """The tokens of words that stand at these places (begin, end) of a text."""
    (encoded,) = codec.encode_batch([text])
    before = codec.encode(text)[: -len(encoded.ids)] if encoded.ids else []
    found = []
    for begin, end in places:
        of_word = tuple(
            at + len(before)
            for at, (start, stop) in enumerate(encoded.offsets)
            if start < end and stop > begin and text[max(start, begin) : min(stop, end)].strip()
        )
        if not of_word:
            raise ValueError(
                f"the tokenizer has no token for the word {text[begin:end][:40]!r} of {text[:60]!r}"
            )
        found.append(of_word)
    return SpelledWords((*before, *encoded.ids), tuple(found))
