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
    """The tokens as the model reads them: BOS first if it reads one, from right to left if it does."""
    tokens: tuple[tuple[int, ...], ...]
    """For each word, the places of its tokens."""


def spelled_words(
    text: str, places: Sequence[tuple[int, int]], codec: Codec, *, bos: bool = True
) -> SpelledWords:
    """The tokens of words that stand at these places (begin, end) of a text; `bos`: the model reads BOS."""
    (encoded,) = codec.encode_batch([text])
    bare = codec.ordered(list(encoded.ids))
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
    return SpelledWords(tuple(ids), tuple(found))
