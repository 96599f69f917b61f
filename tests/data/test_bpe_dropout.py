from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import pytest
import torch
from hypothesis import given, strategies as st

from unspool.data.batch import ragged_from_lists
from unspool.data.batches import BucketFeed
from unspool.data.bpe_dropout import BPEDropout, BPEDropoutFeed, bpe_dropout_rates, with_bpe_dropout
from unspool.data.examples import Sequences
from unspool.tokenization import BPE, Separate, Words, train_bpe, train_characters

TOKENIZER = train_bpe(["abab abab abc", "ab abc"] * 4, 270)
LINES = ["abab abc", "abc abab ab", "ab"] * 3
ROWS = ragged_from_lists([[1, *TOKENIZER.encode(line), 2] for line in LINES])


class FixedRandom(Random):
    """Returns given numbers."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self._numbers = list(numbers)

    def random(self) -> float:
        return self._numbers.pop(0)


def test_bpe_dropout_by_hand() -> None:
    dropout = BPEDropout(TOKENIZER, 0.5)
    assert dropout.split("ab", FixedRandom(0.9)) == ["ab"]
    assert dropout.split("ab", FixedRandom(0.1)) == ["a", "b"]
    # a+b occurs twice in abab: the first is skipped, the second is merged; then the first is skipped again.
    assert dropout.split("abab", FixedRandom(0.1, 0.9, 0.1)) == ["a", "b", "ab"]


@given(st.text("abc xé€", max_size=30))
def test_bpe_dropout_keeps_the_text_and_rate_0_is_bpe(line: str) -> None:
    ids = TOKENIZER.encode(line)
    assert BPEDropout(TOKENIZER, 0.0)(ids, Random(0)) == ids
    for rate in (0.3, 0.999999):
        tokens = BPEDropout(TOKENIZER, rate)(ids, Random(1))
        assert TOKENIZER.decode(tokens) == line
        assert len(tokens) >= len(ids)


def test_bpe_dropout_is_deterministic_for_a_seed() -> None:
    ids, dropout = TOKENIZER.encode("abab abc abab abc"), BPEDropout(TOKENIZER, 0.5)
    assert dropout(ids, Random(3)) == dropout(ids, Random(3))
    assert len({tuple(dropout(ids, Random(seed))) for seed in range(9)}) > 1


def test_bpe_dropout_keeps_an_incomplete_character() -> None:
    half = TOKENIZER.encode("€")[:1]
    assert BPEDropout(TOKENIZER, 0.5)(half, Random(0)) == half


def test_bpe_dropout_rejects_other_vocabularies() -> None:
    with pytest.raises(ValueError, match="needs a BPE vocabulary, but this one is WordLevel"):
        BPEDropout(train_characters(["ab"]), 0.1)


def test_the_rate_has_limits() -> None:
    assert BPE(dropout=0).dropout == 0
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"BPE\.dropout is .* 0 ≤ dropout < 1"):
            BPE(dropout=rate)


def test_bpe_dropout_of_a_very_long_word_is_fast() -> None:
    tokenizer = train_bpe(["ab" * 30] * 5, 300)
    ids = tokenizer.encode("ab" * 20_000)
    start = time.perf_counter()
    tokens = BPEDropout(tokenizer, 0.1)(ids, Random(0))
    assert time.perf_counter() - start < 10  # hours if the word is not split
    assert tokenizer.decode(tokens) == "ab" * 20_000


class Twice(BPEDropout):
    """Writes every token twice."""

    def __init__(self) -> None:
        super().__init__(TOKENIZER, 0.5)

    def __call__(self, ids: Sequence[int], rng: Random) -> list[int]:
        del rng
        return [it for token in ids for it in (token, token)]


def test_rows_are_padded_again_by_hand() -> None:
    feed = BucketFeed(
        Sequences(ragged_from_lists([[1, 5, 6, 2], [1, 7, 2]]), ragged_from_lists([[1, 8, 2], [1, 9, 9, 2]])),
        100,
    )
    batch = BPEDropoutFeed(feed, Twice(), None, max_length=4).batch(0)
    rows = {tuple(row) for row in batch.targets_NU.tolist()}
    assert rows == {(5, 6, 2), (7, 7, 2)}  # 5 5 6 6 2 would be too long
    assert {tuple(row) for row in batch.inputs_NT.tolist()} == {(1, 5, 6), (1, 7, 7)}
    assert batch.weights_NU.tolist() == [[1, 1, 1]] * 2
    other = BPEDropoutFeed(feed, None, Twice(), max_length=9).batch(0)
    assert sorted(map(tuple, other.source_NS.tolist())) == [(8, 8, 2, 0, 0), (9, 9, 9, 9, 2)]
    assert sorted(other.source_lengths_N.tolist()) == [3, 5]
    assert torch.equal(other.targets_NU, feed.batch(0).targets_NU)


def test_a_batch_is_a_function_of_its_number_and_texts_stay() -> None:
    feed = with_bpe_dropout(BucketFeed(Sequences(ROWS), 200), BPE(dropout=0.5), TOKENIZER, 100, 0)
    one, again, next_epoch = feed.batch(0), feed.batch(0), feed.batch(feed.per_epoch)
    assert torch.equal(one.targets_NU, again.targets_NU)
    assert not torch.equal(one.targets_NU, next_epoch.targets_NU)
    texts = sorted(TOKENIZER.decode(row) for row in one.targets_NU.tolist())
    assert texts == sorted(LINES)


def test_without_dropout_the_feed_is_returned() -> None:
    feed = BucketFeed(Sequences(ROWS), 200)
    assert with_bpe_dropout(feed, BPE(), TOKENIZER, 100, 0) is feed
    assert with_bpe_dropout(feed, None, TOKENIZER, 100, 0) is feed
    sides = Separate({"kind": "bpe", "dropout": 0.1}, {"kind": "words"})
    assert bpe_dropout_rates(sides) == (0.0, 0.1)
    assert bpe_dropout_rates(Words()) == (0.0, 0.0)
