"""BPE-dropout: tokenize training text differently in every batch, so that a model learns the parts of words.

    while any pair of neighbours can merge:
        skip each such pair with probability p;   of the others, apply the merge learnt first
    until none is left

Provilkov, Emelianenko and Voita 2020, algorithm 1 (papers.bib: provilkov2020bpe). p = 0 is BPE, p = 1 gives
one token per byte. Words of more than MAX_WORD_CHARS bytes are split first, because the time is quadratic in
the length of a word. Batch number k remains a function of k and the seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unspool.data.batch import Batch
from unspool.interfaces import Feed
from unspool.tokenization import BPE, Separate, Tokenizer
from unspool.tokenization.vocabulary import MAX_WORD_CHARS


class BPEDropout:
    """Replace the tokens of a text by randomly chosen other tokens of the same text."""

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        model = json.loads(tokenizer.backend.to_str())["model"]
        if model["type"] != "BPE":
            raise ValueError(f"BPE-dropout needs a BPE vocabulary, but this one is {model['type']}")
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self._rank = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._ids, self._tokenizer, self.rate = model["vocab"], tokenizer, rate
        self._left_to_right = replace(tokenizer, right_to_left=False, source=None)

    def __call__(self, ids: Sequence[int], rng: Random) -> list[int]:
        """Other tokens of the same text, without special ones; unchanged if a character is incomplete."""
        backend, in_order = self._tokenizer.backend, self._tokenizer.to_model_order(list(ids))
        text = self._left_to_right.decode(in_order)
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        if "".join(words) != "".join(backend.id_to_token(token) or "" for token in in_order):
            return list(ids)
        parts = [
            word[at : at + MAX_WORD_CHARS] for word in words for at in range(0, len(word), MAX_WORD_CHARS)
        ]
        tokens = [self._ids[piece] for part in parts for piece in self.split(part, rng)]
        return self._tokenizer.to_model_order(tokens)

    def split(self, word: str, rng: Random) -> list[str]:
        """Split one word, given in the byte alphabet, into tokens."""
        parts = list(word)
        while True:
            merges = [
                (self._rank[pair], at)
                for at, pair in enumerate(pairwise(parts))
                if pair in self._rank and rng.random() >= self.rate
            ]
            if not merges:
                return parts
            _, at = min(merges)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


@dataclass(frozen=True, eq=False)
class BPEDropoutFeed:
    """The batches of another feed with BPE-dropout. A row that would exceed `max_length` is unchanged."""

    feed: Feed
    target: BPEDropout | None
    source: BPEDropout | None
    max_length: int
    seed: int = 0

    @property
    def per_epoch(self) -> int:
        return self.feed.per_epoch

    def batch(self, number: int) -> Batch:
        batch, rng = self.feed.batch(number), Random(f"{self.seed}/{number}")
        if self.target is not None:
            begins = batch.inputs_NT[:, 0].tolist()
            rows = self._retokenized(batch.targets_NU, batch.lengths_N, self.target, rng)
            targets_NT, lengths_N = _pad(rows)
            inputs_NT, _ = _pad([[begin, *row[:-1]] for begin, row in zip(begins, rows, strict=True)])
            weights_NT = (torch.arange(targets_NT.shape[1]) < lengths_N[:, None]).float()
            batch = replace(
                batch, inputs_NT=inputs_NT, lengths_N=lengths_N, targets_NU=targets_NT, weights_NU=weights_NT
            )
        if self.source is not None and batch.source_NS is not None and batch.source_lengths_N is not None:
            rows = self._retokenized(batch.source_NS, batch.source_lengths_N, self.source, rng)
            source_NS, lengths_N = _pad(rows)
            batch = replace(batch, source_NS=source_NS, source_lengths_N=lengths_N)
        return batch

    def _retokenized(
        self, tokens_NT: Tensor, lengths_N: Tensor, dropout: BPEDropout, rng: Random
    ) -> list[list[int]]:
        """Rows without padding. The last token stays: EOS, or any token of a truncated row."""
        rows = []
        for padded, length in zip(tokens_NT.tolist(), lengths_N.tolist(), strict=True):
            *text, last = padded[:length]
            row = [*dropout(text, rng), last]
            rows.append(row if len(row) <= self.max_length else [*text, last])
        return rows


def with_bpe_dropout(feed: Feed, config: object, tokenizer: Tokenizer, max_length: int, seed: int) -> Feed:
    """Return the feed, with BPE-dropout if the tokenizer's settings ask for it."""
    target, source = (
        BPEDropout(side, rate) if rate else None
        for side, rate in zip((tokenizer, tokenizer.source_tokenizer), bpe_dropout_rates(config), strict=True)
    )
    return BPEDropoutFeed(feed, target, source, max_length, seed) if target or source else feed


def bpe_dropout_rates(config: object) -> tuple[float, float]:
    """Return the BPE-dropout rates of targets and sources."""
    sides = (config.side("target"), config.side("source")) if isinstance(config, Separate) else (config,) * 2
    target, source = (side.dropout if isinstance(side, BPE) else 0.0 for side in sides)
    return target, source


def _pad(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    padded_NT = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return padded_NT, torch.tensor([len(row) for row in rows])
