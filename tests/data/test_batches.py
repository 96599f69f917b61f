from __future__ import annotations

import pytest

from unspool.config import choose
from unspool.data.batch import ragged_from_lists
from unspool.data.batches import BATCHES, Bucketed, BucketFeed, Packed, PackFeed
from unspool.data.examples import Sequences

TEXTS = Sequences(ragged_from_lists([[1, 5, 6, 2], [1, 7, 2], [1, 8, 9, 5, 6, 7, 2]]))  # 3, 2 and 6 positions
ENDS = (1, 2)
PAIRS = Sequences(TEXTS.target, TEXTS.target)


def silence(note: str) -> None:
    pytest.fail(f"nothing was to be said, but: {note}")


def test_a_recipe_can_say_both() -> None:
    assert choose(BATCHES, {"kind": "bucketed", "tokens": 64}, "batches") == Bucketed(64)
    assert choose(BATCHES, {"kind": "packed", "rows": 2, "length": 8}, "batches") == Packed(2, 8)


def test_rows_of_like_length() -> None:
    feed = Bucketed(tokens=6).feed(TEXTS, ENDS, 0, silence)
    assert isinstance(feed, BucketFeed)
    assert feed.per_epoch == 2
    assert (
        sum(batch.weight for batch in Bucketed(tokens=6).validation_batches(TEXTS, ENDS, silence))
        == 3 + 2 + 6
    )


@pytest.mark.parametrize("batches", [Bucketed(tokens=5), Bucketed(tokens=8, max_length=5)])
def test_long_rows_are_an_error_unless_something_is_to_be_done(batches: Bucketed) -> None:
    with pytest.raises(ValueError, match=r"1 of 3 training examples are longer than 5 tokens.* is number 3"):
        batches.feed(TEXTS, ENDS, 0, silence)
    with pytest.raises(ValueError, match="1 of 3 validation examples"):
        batches.validation_batches(TEXTS, ENDS, silence)


def test_long_rows_are_cut_with_a_warning() -> None:
    said: list[str] = []
    cut = Bucketed(tokens=8, max_length=4, long="cut")
    assert sum(batch.weight for batch in cut.validation_batches(TEXTS, ENDS, said.append)) == 3 + 2 + 4
    assert said == ["1 of 3 validation examples are longer than 4 tokens: cut"]


def test_long_rows_are_dropped_with_a_warning() -> None:
    said: list[str] = []
    drop = Bucketed(tokens=8, max_length=4, long="drop")
    assert drop.feed(TEXTS, ENDS, 0, said.append).per_epoch == 1
    assert said == ["1 of 3 training examples are longer than 4 tokens: left out"]


def test_not_every_row_can_be_dropped() -> None:
    only = Sequences(ragged_from_lists([[1, 5, 6, 2]]))
    with pytest.raises(ValueError, match="1 of 1 training examples"):
        Bucketed(tokens=8, max_length=2, long="drop").feed(only, ENDS, 0, silence)


def test_blocks_of_one_stream() -> None:
    feed = Packed(rows=2, length=4).feed(TEXTS, ENDS, 0, silence)
    assert isinstance(feed, PackFeed)
    assert feed.batch(0).inputs_NT.shape == (2, 4)
    # 14 tokens; the first has nothing before it, and two are BOS.
    assert sum(batch.weight for batch in Packed(2, 4).validation_batches(TEXTS, ENDS, silence)) == 14 - 1 - 2


def test_pairs_cannot_be_packed() -> None:
    with pytest.raises(ValueError, match=r"packed batches are for plain texts.*bucketed"):
        Packed().feed(PAIRS, ENDS, 0, silence)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Bucketed(tokens=0), "tokens is 0"),
        (lambda: Bucketed(tokens=10, max_length=11), r"max_length is 11; it must be from 2 to 10"),
        (lambda: Bucketed(tokens=10, max_length=1), "max_length is 1"),
        (lambda: Packed(rows=0), "rows is 0"),
        (lambda: Packed(length=0), "length is 0"),
    ],
)
def test_invalid_settings_are_refused(make, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=said):
        make()
