from __future__ import annotations

from random import Random

import torch

from unspool.data.batch import ragged_from_lists
from unspool.data.bucketing import BucketFeed, ResegmentedFeed, bpe_dropout_rates, with_bpe_dropout
from unspool.data.examples import Sequences
from unspool.tokenization import BPE, Separate, Words, train_bpe

LINES = ["abab abc", "abc abab ab", "ab"] * 3
TEXT = train_bpe(LINES, 275)
ROWS = ragged_from_lists([[1, *TEXT.encode(line), 2] for line in LINES])


def doubled(ids: list[int], dice: Random) -> list[int]:
    return [it for token in ids for it in (token, token)]


def test_rows_are_laid_out_again_by_hand() -> None:
    feed = BucketFeed(
        Sequences(ragged_from_lists([[1, 5, 6, 2], [1, 7, 2]]), ragged_from_lists([[1, 8, 2], [1, 9, 9, 2]])),
        100,
    )
    batch = ResegmentedFeed(feed, doubled, None, limit=4).batch(0)
    rows = {tuple(row) for row in batch.targets_NU.tolist()}
    assert rows == {(5, 6, 2), (7, 7, 2)}  # 5 5 6 6 2 would be too long
    assert {tuple(row) for row in batch.inputs_NT.tolist()} == {(1, 5, 6), (1, 7, 7)}
    assert batch.weights_NU.tolist() == [[1, 1, 1]] * 2
    other = ResegmentedFeed(feed, None, doubled, limit=9).batch(0)
    assert sorted(map(tuple, other.source_NS.tolist())) == [(8, 8, 2, 0, 0), (9, 9, 9, 9, 2)]
    assert sorted(other.source_lengths_N.tolist()) == [3, 5]
    assert torch.equal(other.targets_NU, feed.batch(0).targets_NU)


def test_a_batch_is_a_function_of_its_number_and_texts_stay() -> None:
    feed = with_bpe_dropout(BucketFeed(Sequences(ROWS), 200), BPE(dropout=0.5), TEXT, 100, 0)
    one, again, next_epoch = feed.batch(0), feed.batch(0), feed.batch(feed.per_epoch)
    assert torch.equal(one.targets_NU, again.targets_NU)
    assert not torch.equal(one.targets_NU, next_epoch.targets_NU)
    texts = sorted(TEXT.decode(row) for row in one.targets_NU.tolist())
    assert texts == sorted(LINES)


def test_who_asks_for_none_gets_the_feed_itself() -> None:
    feed = BucketFeed(Sequences(ROWS), 200)
    assert with_bpe_dropout(feed, BPE(), TEXT, 100, 0) is feed
    assert with_bpe_dropout(feed, None, TEXT, 100, 0) is feed
    sides = Separate({"kind": "bpe", "dropout": 0.1}, {"kind": "words"})
    assert bpe_dropout_rates(sides) == (0.0, 0.1)
    assert bpe_dropout_rates(Words()) == ()
