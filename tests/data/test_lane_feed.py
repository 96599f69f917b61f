from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.data.packing import CarriedFeed, carried_batches


def counting(tokens: int) -> np.ndarray:
    return np.arange(tokens, dtype=np.uint32)


def test_lanes_by_hand() -> None:
    feed = CarriedFeed(
        counting(13), rows=2, length=3
    )  # 12 targets: two lanes of two blocks, and none to spare
    assert (feed.blocks, feed.per_epoch) == (2, 2)
    first, second, third = (feed.batch(number) for number in range(3))
    assert first.inputs_NT.tolist() == [[0, 1, 2], [6, 7, 8]]
    assert second.inputs_NT.tolist() == [[3, 4, 5], [9, 10, 11]]
    assert second.targets_NU.tolist() == [[4, 5, 6], [10, 11, 12]]
    assert [it.follows for it in (first, second, third)] == [None, 0, None]
    assert third.inputs_NT.tolist() == first.inputs_NT.tolist()


def test_batches_of_one_update_have_lanes_of_their_own_by_hand() -> None:
    feed = CarriedFeed(counting(13), rows=1, length=3, accumulate=2)
    assert [feed.batch(number).inputs_NT.tolist() for number in range(4)] == [
        *([[0, 1, 2]], [[6, 7, 8]]),
        *([[3, 4, 5]], [[9, 10, 11]]),
    ]
    assert [feed.batch(number).follows for number in range(5)] == [None, None, 0, 1, None]


SIZES = st.tuples(st.integers(2, 120), st.integers(1, 5), st.integers(1, 9), st.integers(1, 4)).filter(
    lambda it: it[0] > it[1] * it[2] * it[3]
)


@settings(deadline=None)
@given(SIZES, st.integers(0, 5), st.integers(0, 3))
def test_a_row_goes_on_where_the_row_it_follows_ended(
    sizes: tuple[int, int, int, int], seed: int, epoch: int
) -> None:
    tokens, rows, length, apart = sizes
    feed = CarriedFeed(counting(tokens), rows, length, seed, accumulate=apart)
    numbers = range(epoch * feed.per_epoch, (epoch + 1) * feed.per_epoch)
    seen: list[int] = []
    for number in numbers:
        batch = feed.batch(number)
        assert batch.inputs_NT.shape == (rows, length)
        assert torch.equal(batch.targets_NU, batch.inputs_NT + 1)
        assert (batch.follows is None) == (number - epoch * feed.per_epoch < apart)
        if batch.follows is not None:
            assert batch.follows == number - apart
            before = feed.batch(batch.follows)
            assert torch.equal(batch.inputs_NT[:, 0], before.targets_NU[:, -1])
        seen += batch.inputs_NT.flatten().tolist()
    assert len(seen) == len(set(seen))
    assert tokens - len(seen) <= rows * apart * length + rows * apart


def test_epochs_begin_elsewhere() -> None:
    feed = CarriedFeed(counting(1000), 3, 20)
    assert len({int(feed.batch(epoch * feed.per_epoch).inputs_NT[0, 0]) for epoch in range(9)}) > 3


def test_bos_after_eos_is_nothing_to_learn() -> None:
    stream = np.array([1, 5, 2, 1, 6, 2, 1], dtype=np.uint16)
    assert CarriedFeed(stream, 1, 6, ends=(1, 2)).batch(0).weights_NU.tolist() == [[1, 1, 0, 1, 1, 0]]


@settings(deadline=None)
@given(st.integers(2, 100), st.integers(1, 7), st.integers(1, 9))
def test_every_token_is_validated_on_once_in_lanes(tokens: int, rows: int, length: int) -> None:
    batches = carried_batches(counting(tokens), rows, length)
    seen: list[int] = []
    for number, batch in enumerate(batches):
        assert batch.follows == (number - 1 if number else None)
        real = batch.weights_NU > 0
        assert torch.equal(real.sum(1), batch.lengths_N)
        assert torch.equal(batch.targets_NU[real], batch.inputs_NT[real] + 1)
        seen += batch.targets_NU[real].tolist()
        if number:
            before = batches[number - 1]
            for row in range(rows):
                if batch.lengths_N[row]:
                    assert batch.inputs_NT[row, 0] == before.targets_NU[row, -1]
    assert sorted(seen) == list(range(1, tokens))


def test_too_little_text_is_refused() -> None:
    with pytest.raises(
        ValueError, match="12 tokens, fewer than a block of 3 and its next token for each of 4"
    ):
        CarriedFeed(counting(12), 2, 3, accumulate=2)
