"""Train a vocabulary on text: byte-level BPE, words, or characters.

Ids 0 to 3 are <pad>, <bos>, <eos> and <unk>. Text never becomes one of the first three: "<eos>" in a text is
plain text and round-trips. <unk> replaces an unknown word or character and is visible when decoded.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from unspool.arguments import Checked, number
from unspool.config import choose, to_kind_dict
from unspool.tokenization.tokenizer import Tokenizer

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)
_WORD_SPECIALS = tuple(f"< {each[1:-1]} >" for each in SPECIALS)
"""Special tokens of a word vocabulary, with spaces, so that no word can equal them."""

MAX_WORD_CHARS = 256
"""Longer words are split, because BPE training takes quadratic time in word length."""
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD_CHARS + 1},}}|\s{{{MAX_WORD_CHARS + 1},}}")


def train_bpe(lines: Iterable[str], vocab_size: int, *, min_count: int = 2) -> Tokenizer:
    """Train byte-level BPE with at most `vocab_size` tokens; every text round-trips.

    BPE starts with the 256 bytes and repeatedly merges the most frequent pair of neighbours, as long as it
    occurs at least `min_count` times.

        (a, b)* = argmax over pairs of count(a b);   a b → ab

    Sennrich, Haddow and Birch 2016, section 3.2 (papers.bib: sennrich2016neural); over bytes: Radford et al.
    2019, section 2.2 (papers.bib: radford2019language).
    """
    min_size = len(SPECIALS) + 256
    if vocab_size < min_size:
        raise ValueError(f"vocab_size is {vocab_size}; the special tokens and the 256 bytes need {min_size}")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_split_long_words(_check_lines(lines)), trainer)
    # The pre-tokenizer splits between "<", letters and ">", so merges never form a special token.
    # <unk> is not special, so that it is visible.
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [each for each in spec["added_tokens"] if each["id"] != UNK_ID]
    return _make_tokenizer(tokenizers.Tokenizer.from_str(json.dumps(spec)), SPECIALS)


def train_words(lines: Iterable[str], *, vocab_size: int | None = None, min_count: int = 1) -> Tokenizer:
    """Whitespace-separated words in order of falling frequency; others become <unk>.

    Decoding writes single spaces between words.
    """
    max_words = None if vocab_size is None else vocab_size - len(SPECIALS)
    if max_words is not None and max_words < 1:
        raise ValueError(
            f"vocab_size is {vocab_size}; the special tokens and one word need {len(SPECIALS) + 1}"
        )
    counts = Counter(word for line in _check_lines(lines) for word in line.split())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    frequent = [word for word, count in ranked if count >= min_count][:max_words]
    if not frequent:
        raise ValueError(f"no word occurs {min_count} times or more; give more text or a smaller min_count")
    tokenizer = _word_level(_WORD_SPECIALS, frequent)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # "< unk >" → "<unk>", then a space before every word except the first.
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(" ", ""), decoders.WordPiece(prefix=" ", cleanup=False)]
    )
    return _make_tokenizer(tokenizer, _WORD_SPECIALS)


def train_characters(lines: Iterable[str]) -> Tokenizer:
    """Every character of the text in order of code points; others become <unk>."""
    seen: set[str] = set()
    for line in _check_lines(lines):
        seen.update(line)
    tokenizer = _word_level(SPECIALS, sorted(seen))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return _make_tokenizer(tokenizer, SPECIALS)


@dataclass(frozen=True)
class BPE(Checked):
    """Byte-level BPE, trained on the training text."""

    vocab_size: int = 8000
    """Maximum number of tokens."""
    min_count: int = 2
    """Pairs that occur less often are not merged."""
    dropout: float = number(0.0, at_least=0, below=1)
    """BPE-dropout: probability of skipping each merge, drawn anew in every training batch."""
    right_to_left: bool = False
    """Whether the model generates the last token of a text first."""

    def train(self, lines: Iterable[str]) -> Tokenizer:
        tokenizer = train_bpe(lines, self.vocab_size, min_count=self.min_count)
        return replace(tokenizer, right_to_left=self.right_to_left)


@dataclass(frozen=True)
class Words:
    """Whitespace-separated words."""

    vocab_size: int | None = None
    """Maximum number of tokens; the rarest words are dropped."""
    min_count: int = 1
    """Words that occur less often become <unk>."""
    right_to_left: bool = False
    """Whether the model generates the last token of a text first."""

    def train(self, lines: Iterable[str]) -> Tokenizer:
        tokenizer = train_words(lines, vocab_size=self.vocab_size, min_count=self.min_count)
        return replace(_check_vocabulary(tokenizer, "word"), right_to_left=self.right_to_left)


@dataclass(frozen=True)
class Characters:
    """Every character is a token."""

    right_to_left: bool = False
    """Whether the model generates the last token of a text first."""

    def train(self, lines: Iterable[str]) -> Tokenizer:
        tokenizer = _check_vocabulary(train_characters(lines), "character")
        return replace(tokenizer, right_to_left=self.right_to_left)


@dataclass(frozen=True)
class Separate:
    """Separate vocabularies for the sources and the targets of pairs."""

    source: dict[str, Any]
    """Kind and settings of the source vocabulary."""
    target: dict[str, Any]
    """Kind and settings of the target vocabulary."""

    def __post_init__(self) -> None:
        # Fill in defaults, so that equal settings compare equal.
        for side in ("source", "target"):
            object.__setattr__(self, side, to_kind_dict(SIDE_CONFIGS, self.side(side)))

    def side(self, name: str) -> BPE | Words | Characters:
        """The settings of "source" or "target"."""
        return choose(SIDE_CONFIGS, getattr(self, name), f"tokenizer.{name}")

    def train(self, lines: Iterable[str]) -> Tokenizer:  # noqa: ARG002
        raise ValueError(
            'tokenizer.kind = "separate" needs pairs of source and target: choose another kind, or other data'
        )

    def train_pairs(self, sources: Iterable[str], targets: Iterable[str]) -> Tokenizer:
        """The target tokenizer, with the source tokenizer as its `source`."""
        return replace(self.side("target").train(targets), source=self.side("source").train(sources))


TokenizerConfig = BPE | Words | Characters | Separate

SIDE_CONFIGS: dict[str, type[BPE | Words | Characters]] = {
    "bpe": BPE,
    "characters": Characters,
    "words": Words,
}
"""Kinds for one side of pairs."""
TOKENIZER_CONFIGS: dict[str, type[TokenizerConfig]] = {
    "bpe": BPE,
    "characters": Characters,
    "separate": Separate,
    "words": Words,
}


def _check_vocabulary(tokenizer: Tokenizer, what: str) -> Tokenizer:
    """Reject a vocabulary with a single entry: a model has nothing to predict."""
    if tokenizer.vocab_size < len(SPECIALS) + 2:
        only = tokenizer.backend.id_to_token(len(SPECIALS))
        raise ValueError(
            f"the vocabulary has one {what}, {only!r}: there is nothing to predict; give more text"
            + (", or a larger vocab_size or smaller min_count" if what == "word" else "")
        )
    return tokenizer


def _check_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; raise if they are not strings or all empty."""
    if isinstance(lines, str):
        raise TypeError("lines is one string; give a list of strings or an open file")
    empty = True
    for at, line in enumerate(lines):
        if not isinstance(line, str):
            raise TypeError(f"line {at} is a {type(line).__name__}, not a string")
        empty = empty and not line.strip()
        yield line
    if empty:
        raise ValueError("there is no text to train a vocabulary on: all lines are empty")


def _split_long_words(lines: Iterable[str]) -> Iterator[str]:
    """Split lines inside runs of more than MAX_WORD_CHARS letters or spaces.

    The trainer rewrites a whole word for each merge, so its time is quadratic in the length of a word. Only
    pairs across a split are lost; ordinary text gives the same vocabulary.
    """
    for line in lines:
        start = 0
        for run in _LONG_WORD.finditer(line):
            for cut in range(run.start() + MAX_WORD_CHARS, run.end(), MAX_WORD_CHARS):
                yield line[start:cut]
                start = cut
        yield line[start:]


def _word_level(specials: tuple[str, ...], tokens: list[str]) -> tokenizers.Tokenizer:
    vocabulary = {token: at for at, token in enumerate((*specials, *tokens))}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=specials[UNK_ID]))
    tokenizer.add_special_tokens([*specials[:UNK_ID]])
    return tokenizer


def _make_tokenizer(tokenizer: tokenizers.Tokenizer, specials: tuple[str, ...]) -> Tokenizer:
    return Tokenizer(
        tokenizer,
        bos_id=BOS_ID,
        eos_ids=frozenset({EOS_ID}),
        bos_token=specials[BOS_ID],
        eos_token=specials[EOS_ID],
        literal=True,
    )
