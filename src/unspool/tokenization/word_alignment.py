"""Word–token alignment: which tokens spell which words of a text.

    tokens of word w = { t : token t spells a character of the text from begin_w to end_w }

Sub-word tokens as in Clark et al. 2019, §2 (papers.bib: clark2019what). A token belongs to two words if the
tokenizer does not split at the word boundary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unspool.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class AlignedWords:
    """The tokens of a text and of each of its words."""

    ids: tuple[int, ...]
    """Tokens in model order, with BOS if the model reads one."""
    tokens: tuple[tuple[int, ...], ...]
    """For each word, the indices of its tokens in `ids`."""


def align_words(
    text: str, spans: Sequence[tuple[int, int]], tokenizer: Tokenizer, *, bos: bool = True
) -> AlignedWords:
    """Align words, given by their character spans (begin, end), with tokens; `bos`: the model reads BOS."""
    (encoding,) = tokenizer.encode_batch([text])
    bare = tokenizer.to_model_order(list(encoding.ids))
    ids = tokenizer.with_bos(bare) if bos else bare
    offsets = encoding.offsets[::-1] if tokenizer.right_to_left else encoding.offsets
    aligned = []
    for begin, end in spans:
        tokens = tuple(
            at + len(ids) - len(bare)
            for at, (start, stop) in enumerate(offsets)
            if start < end and stop > begin and text[max(start, begin) : min(stop, end)].strip()
        )
        if not tokens:
            raise ValueError(
                f"the tokenizer has no token for the word {text[begin:end][:40]!r} of {text[:60]!r}"
            )
        aligned.append(tokens)
    return AlignedWords(tuple(ids), tuple(aligned))


@dataclass(frozen=True)
class WordTokens:
    """The tokens of a text and the first token of each word, for tags that belong to words.

        word j = the j-th run of non-whitespace characters
        first_j = min { t : token t spells a character of word j }

    The first token represents its word, as in Devlin et al. 2019, §5.3 (papers.bib: devlin2019bert): the
    encoder's output at that position has seen the other tokens.
    """

    ids: list[int]
    """The tokens, without BOS."""
    words: list[str]
    firsts: list[int]
    """For each word, the index of its first token."""


def tokenize_words(lines: Sequence[str], tokenizer: Tokenizer) -> Iterator[WordTokens]:
    """Tokenize lines and find the first token of each whitespace-separated word; runs on all cores."""
    for line, encoding in zip(lines, tokenizer.encode_batch(lines), strict=True):
        words, offsets = list(re.finditer(r"\S+", line)), encoding.offsets
        firsts, at = list[int](), 0
        for word in words:
            while at < len(offsets) and offsets[at][1] <= word.start():
                at += 1
            if at == len(offsets) or offsets[at][0] >= word.end():
                raise ValueError(f"the tokenizer has no token for the word {word.group()[:40]!r}: remove it")
            firsts.append(at)
        yield WordTokens(encoding.ids, [word.group() for word in words], firsts)
