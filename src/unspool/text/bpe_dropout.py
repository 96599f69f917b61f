"""BPE-dropout: the same text in other tokens each time, so that a model knows words by their parts.

    while any pair of neighbours can be joined:
        each such pair is left out with probability p;   of the others, the one learnt first is joined
    until none is left

Provilkov, Emelianenko and Voita 2020, algorithm 1 (papers.bib: provilkov2020bpe). With p = 0 it is BPE, with
p = 1 every byte is a token. A word of more than 256 bytes is cut first. For training alone: a trained model
reads text as BPE cuts it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from unspool.text.codec import Codec
from unspool.text.vocabulary import MAX_WORD


class BPEDropout:
    """Cuts what a byte-level BPE vocabulary has encoded in another way."""

    def __init__(self, text: Codec, rate: float) -> None:
        model = json.loads(text.tokenizer.to_str())["model"]
        if model["type"] != "BPE":
            raise ValueError(f"BPE-dropout is for a vocabulary of BPE, and this one is {model['type']}")
        joins = (it.split(" ") if isinstance(it, str) else it for it in model["merges"])
        self._rank = {(left, right): rank for rank, (left, right) in enumerate(joins)}
        self._ids, self._text, self.rate = model["vocab"], text, rate
        self._forwards = replace(text, right_to_left=False, source=None)

    def __call__(self, ids: Sequence[int], dice: Random) -> list[int]:
        """Other tokens of the same text, without special ones; the same where their text is no whole one."""
        tokenizer, ordered = self._text.tokenizer, self._text.ordered(list(ids))
        words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(self._forwards.decode(ordered))]
        if "".join(words) != "".join(tokenizer.id_to_token(token) or "" for token in ordered):
            return list(ids)  # a cut inside of a character
        # A round looks at the whole word: a very long one is cut first, or its rounds would take hours.
        cut = [word[at : at + MAX_WORD] for word in words for at in range(0, len(word), MAX_WORD)]
        return self._text.ordered([self._ids[part] for word in cut for part in self.parts(word, dice)])

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
