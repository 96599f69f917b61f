"""Vocabularies learnt from one's own text: byte-level BPE, words, or characters.

BPE begins with the 256 bytes and joins, again and again, the pair of neighbours that is seen most often.

    (a, b)* = argmax over pairs of count(a b);   a b → ab

Paper: Sennrich, Haddow and Birch 2016, section 3.2 (papers.bib: sennrich2016neural); over bytes, so that no
text is unknown: Radford et al. 2019, section 2.2 (papers.bib: radford2019language).

Each vocabulary begins with <pad>, <bos>, <eos> and <unk>, whose ids are 0 to 3. No text becomes one of the
first three, though it may spell them: "<eos>" in a text is text like any other, and comes back. <unk> stands
for a word or character that the vocabulary does not have, and is shown.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import PreTokenizer

from unspool.config import choose, to_kind_dict
from unspool.tokenization.tokenizer import Tokenizer

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)
_WORD_SPECIALS = tuple(f"< {each[1:-1]} >" for each in SPECIALS)
"""How a vocabulary of words spells them: with spaces, which no word has."""

MAX_WORD_CHARS = 256
"""Longer words are learnt from in parts of so many characters: BPE would stall on them."""
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD_CHARS + 1},}}|\s{{{MAX_WORD_CHARS + 1},}}")


def train_bpe(
    lines: Iterable[str], vocab_size: int, *, min_count: int = 2, add_bos: bool = False
) -> Tokenizer:
    """Byte-level BPE with at most `vocab_size` tokens; a pair seen less than `min_count` times is not joined.

    Every text comes back from it unchanged.
    """
    least = len(SPECIALS) + 256
    if vocab_size < least:
        raise ValueError(f"vocab_size is {vocab_size}; the special tokens and the 256 bytes need {least}")
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
    # The cuts between "<", letters and ">" keep joins from making a special token; <unk> must be visible.
    return _make_tokenizer(_without_special(tokenizer, UNK_ID), SPECIALS, add_bos)


def train_words(
    lines: Iterable[str], *, vocab_size: int | None = None, min_count: int = 1, add_bos: bool = False
) -> Tokenizer:
    """The words between white space, the most frequent first; the others are <unk>.

    Text comes back with single spaces between its words.
    """
    room = None if vocab_size is None else vocab_size - len(SPECIALS)
    if room is not None and room < 1:
        raise ValueError(
            f"vocab_size is {vocab_size}; the special tokens and one word need {len(SPECIALS) + 1}"
        )
    counts = Counter(word for line in _check_lines(lines) for word in line.split())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = [word for word, count in ranked if count >= min_count][:room]
    if not kept:
        raise ValueError(f"no word occurs {min_count} times or more; give more text or a smaller min_count")
    tokenizer = _word_level(_WORD_SPECIALS, kept)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # "< unk >" → "<unk>", then a space before every word but the first (no word begins with the prefix " ").
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(" ", ""), decoders.WordPiece(prefix=" ", cleanup=False)]
    )
    return _make_tokenizer(tokenizer, _WORD_SPECIALS, add_bos)


def train_characters(lines: Iterable[str], *, add_bos: bool = False) -> Tokenizer:
    """Every character that occurs, in the order of their code points; the others are <unk>."""
    seen: set[str] = set()
    for line in _check_lines(lines):
        seen.update(line)
    tokenizer = _word_level(SPECIALS, sorted(seen))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return _make_tokenizer(tokenizer, SPECIALS, add_bos)


@dataclass(frozen=True)
class BPE:
    """Byte-level BPE, learnt from the training text."""

    vocab_size: int = 8000
    """The most tokens there may be."""
    min_count: int = 2
    """A pair of neighbours seen less often is not joined."""
    dropout: float = 0.0
    """BPE-dropout: while a model learns, each join is left out with this probability, anew in every batch."""
    right_to_left: bool = False
    """Whether a model says the last token of a text first, and its first one last."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}; it must be at least 0 and less than 1")

    def train(self, lines: Iterable[str]) -> Tokenizer:
        """The vocabulary of these lines."""
        learnt = train_bpe(lines, self.vocab_size, min_count=self.min_count)
        return replace(learnt, right_to_left=self.right_to_left)


@dataclass(frozen=True)
class Words:
    """The words between white space."""

    vocab_size: int | None = None
    """The most tokens there may be; the rarest words are left out."""
    min_count: int = 1
    """A word seen less often is <unk>."""
    right_to_left: bool = False
    """Whether a model says the last token of a text first, and its first one last."""

    def train(self, lines: Iterable[str]) -> Tokenizer:
        """The vocabulary of these lines."""
        learnt = _check_vocabulary(
            train_words(lines, vocab_size=self.vocab_size, min_count=self.min_count), "word"
        )
        return replace(learnt, right_to_left=self.right_to_left)


@dataclass(frozen=True)
class Characters:
    """Every character is a token."""

    right_to_left: bool = False
    """Whether a model says the last token of a text first, and its first one last."""

    def train(self, lines: Iterable[str]) -> Tokenizer:
        """The vocabulary of these lines."""
        learnt = _check_vocabulary(train_characters(lines), "character")
        return replace(learnt, right_to_left=self.right_to_left)


@dataclass(frozen=True)
class Separate:
    """A vocabulary for the sources and another one for the targets of pairs."""

    source: dict[str, Any]
    """What is learnt from the sources: any of the other kinds, and its settings."""
    target: dict[str, Any]
    """What is learnt from the targets."""

    def __post_init__(self) -> None:
        # All settings are written out, so that equal ones are equal however they were said.
        for side in ("source", "target"):
            object.__setattr__(self, side, to_kind_dict(SIDE_CONFIGS, self.side(side)))

    def side(self, name: str) -> BPE | Words | Characters:
        """The settings of "source" or "target"."""
        found: BPE | Words | Characters = choose(SIDE_CONFIGS, getattr(self, name), f"text.{name}")
        return found

    def train(self, lines: Iterable[str]) -> Tokenizer:
        """Refused: it must be known which side a line is of."""
        del lines
        raise ValueError(
            'text.kind = "separate" is for data of pairs, a source and a target each: choose another kind of '
            "text, or other data"
        )

    def train_pairs(self, sources: Iterable[str], targets: Iterable[str]) -> Tokenizer:
        """The vocabulary of the targets, and in it that of the sources."""
        return replace(self.side("target").train(targets), source=self.side("source").train(sources))


TokenizerConfig = BPE | Words | Characters | Separate

SIDE_CONFIGS: dict[str, type[BPE | Words | Characters]] = {
    "bpe": BPE,
    "characters": Characters,
    "words": Words,
}
"""What one side of pairs may have."""
TOKENIZER_CONFIGS: dict[str, type[TokenizerConfig]] = {
    "bpe": BPE,
    "characters": Characters,
    "separate": Separate,
    "words": Words,
}


def _check_vocabulary(codec: Tokenizer, what: str) -> Tokenizer:
    """The vocabulary, if a model can learn which of its tokens comes next."""
    if codec.vocab_size < len(SPECIALS) + 2:
        only = codec.backend.id_to_token(len(SPECIALS))
        raise ValueError(
            f"the vocabulary has one {what}, {only!r}: there is nothing to predict; give more text"
            + (", or a larger vocab_size or smaller min_count" if what == "word" else "")
        )
    return codec


def _check_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines, once it is certain that there is something in them."""
    if isinstance(lines, str):
        raise TypeError("lines is one string; give a list of strings or an open file")
    empty = True
    for at, line in enumerate(lines):
        if not isinstance(line, str):
            raise TypeError(f"line {at} is a {type(line).__name__}, not a string")
        empty = empty and not line.strip()
        yield line
    if empty:
        raise ValueError("there is no text to learn a vocabulary from: the lines are none, or all empty")


def _split_long_words(lines: Iterable[str]) -> Iterator[str]:
    """The lines, cut inside of words, and of white space, of more than MAX_WORD characters.

    The trainer rewrites a whole word for each join in it: its time grows with the square of a word's length.
    Only joins across a cut are not counted: a vocabulary of ordinary text stays what it was.
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


def _without_special(tokenizer: tokenizers.Tokenizer, token: int) -> tokenizers.Tokenizer:
    """The same tokenizer, with the token no longer special. Only its file says which ones are."""
    said = json.loads(tokenizer.to_str())
    said["added_tokens"] = [each for each in said["added_tokens"] if each["id"] != token]
    return tokenizers.Tokenizer.from_str(json.dumps(said))


def _make_tokenizer(tokenizer: tokenizers.Tokenizer, specials: tuple[str, ...], add_bos: bool) -> Tokenizer:
    return Tokenizer(
        tokenizer,
        bos_id=BOS_ID,
        eos_ids=frozenset({EOS_ID}),
        add_bos=add_bos,
        bos_token=specials[BOS_ID],
        eos_token=specials[EOS_ID],
        literal=True,
    )


# How text is cut before byte-level BPE joins bytes: no token reaches over a cut.
#
# Every vocabulary was learnt with its own cuts, and reads text well with these only. A GGUF file names them
# (`tokenizer.ggml.pre`); the names are llama.cpp's, the patterns those of the models' own tokenizers.
#
# GPT-2's cuts: Radford et al. 2019, section 2.2 (papers.bib: radford2019language).


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}"
_QWEN2 = rf"{_WORDS}|\p{{N}}|{_MARKS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split_at(*patterns: str) -> PreTokenizer:
    """Cut at every match of the first pattern, then what is left at the second, and so on."""
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2])
_llama3 = _split_at(_LLAMA3)
_qwen2 = _split_at(_QWEN2)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _split_at(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "command-r": _digits,
    "dbrx": _llama3,
    "deepseek-r1-qwen": _qwen2,
    "falcon": _split_at(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
    "falcon3": _llama3,
    "gpt-2": _gpt2,
    "llama-bpe": _llama3,
    "llama-v3": _llama3,
    "llama3": _llama3,
    "mpt": _gpt2,
    "olmo": _gpt2,
    "phi-2": _gpt2,
    "qwen2": _qwen2,
    "refact": _digits,
    "smaug-bpe": _llama3,
    "smollm": _digits,
    "stablelm2": _qwen2,
    "starcoder": _digits,
    "tekken": _split_at(_TEKKEN),
}

# A word that is a token as it stands is not joined from its bytes; and the text begins with the first token.
IGNORE_MERGES = frozenset({"falcon3", "llama-bpe", "llama-v3", "llama3", "tekken"})


class BPEDropout:
    """Cuts what a byte-level BPE vocabulary has encoded in another way.

    BPE-dropout: the same text in other tokens each time, so that a model knows words by their parts.

        while any pair of neighbours can be joined:
            each such pair is left out with probability p;   of the others, the one learnt first is joined
        until none is left

    Provilkov, Emelianenko and Voita 2020, algorithm 1 (papers.bib: provilkov2020bpe). With p = 0 it is BPE,
    with p = 1 every byte is a token. A word of more than 256 bytes is cut first. For training alone: a
    trained model reads text as BPE cuts it.
    """

    def __init__(self, text: Tokenizer, rate: float) -> None:
        model = json.loads(text.backend.to_str())["model"]
        if model["type"] != "BPE":
            raise ValueError(f"BPE-dropout is for a vocabulary of BPE, and this one is {model['type']}")
        joins = (it.split(" ") if isinstance(it, str) else it for it in model["merges"])
        self._rank = {(left, right): rank for rank, (left, right) in enumerate(joins)}
        self._ids, self._text, self.rate = model["vocab"], text, rate
        self._forwards = replace(text, right_to_left=False, source=None)

    def __call__(self, ids: Sequence[int], dice: Random) -> list[int]:
        """Other tokens of the same text, without special ones; the same where their text is no whole one."""
        tokenizer, ordered = self._text.backend, self._text.to_model_order(list(ids))
        words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(self._forwards.decode(ordered))]
        if "".join(words) != "".join(tokenizer.id_to_token(token) or "" for token in ordered):
            return list(ids)  # a cut inside of a character
        # A round looks at the whole word: a very long one is cut first, or its rounds would take hours.
        cut = [word[at : at + MAX_WORD_CHARS] for word in words for at in range(0, len(word), MAX_WORD_CHARS)]
        return self._text.to_model_order([self._ids[part] for word in cut for part in self.parts(word, dice)])

    def parts(self, word: str, dice: Random) -> list[str]:
        """One word, whose bytes are characters, in parts."""
        parts = list(word)
        while True:
            found = [
                (self._rank[pair], at)
                for at, pair in enumerate(pairwise(parts))
                if pair in self._rank and dice.random() >= self.rate
            ]
            if not found:
                return parts
            _, at = min(found)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
