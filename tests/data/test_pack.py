from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from unspool.data.batches import PackFeed, stream_batches

STREAM = np.array([1, 5, 6, 2, 1, 7, 2, 1, 8, 9, 2], dtype=np.uint16)


def test_a_block_predicts_what_comes_next_but_not_bos_by_hand() -> None:
    (batch,) = stream_batches(STREAM, rows=4, length=4, ends=(1, 2))
    assert batch.inputs_NT.tolist() == [[1, 5, 6, 2], [1, 7, 2, 1], [8, 9, 0, 0]]
    assert batch.targets_NU.tolist() == [[5, 6, 2, 1], [7, 2, 1, 8], [9, 2, 0, 0]]
    assert batch.weights_NU.tolist() == [[1, 1, 1, 0], [1, 1, 0, 1], [1, 1, 0, 0]]
    assert batch.lengths_N.tolist() == [4, 4, 2]


def test_one_token_for_both_ends_is_still_learnt_as_an_end() -> None:
    (batch,) = stream_batches(np.array([2, 5, 2, 2, 7, 2], dtype=np.uint16), rows=1, length=5, ends=(2, 2))
    assert batch.targets_NU.tolist() == [[5, 2, 2, 7, 2]]
    assert batch.weights_NU.tolist() == [[1, 1, 0, 1, 1]]


SIZES = st.tuples(st.integers(2, 200), st.integers(1, 5), st.integers(1, 20)).filter(lambda it: it[0] > it[2])


@given(SIZES, st.integers(0, 5), st.integers(0, 4))
def test_the_blocks_of_an_epoch_are_disjoint_and_leave_little_out(
    sizes: tuple[int, int, int], seed: int, epoch: int
) -> None:
    tokens, rows, length = sizes
    feed = PackFeed(np.arange(tokens, dtype=np.uint32), rows, length, seed)
    batches = [feed.batch(epoch * feed.per_epoch + at) for at in range(feed.per_epoch)]
    seen = [int(it) for batch in batches for it in batch.inputs_NT.flatten()]
    assert len(seen) == len(set(seen)) == feed.blocks * length
    assert tokens - len(seen) <= 2 * length
    for batch in batches:
        assert torch.equal(batch.targets_NU, batch.inputs_NT + 1)
        assert batch.inputs_NT.shape[1] == length
        assert 1 <= len(batch.inputs_NT) <= rows
    assert sum(len(batch.inputs_NT) for batch in batches) == feed.blocks


@given(SIZES, st.integers(0, 5), st.lists(st.integers(0, 100), min_size=1, max_size=6))
def test_a_batch_depends_on_its_number_alone(
    sizes: tuple[int, int, int], seed: int, numbers: list[int]
) -> None:
    stream, rows, length = np.arange(sizes[0], dtype=np.uint32), *sizes[1:]
    feed = PackFeed(stream, rows, length, seed)
    for number, batch in {number: feed.batch(number) for number in numbers}.items():
        assert torch.equal(batch.inputs_NT, PackFeed(stream, rows, length, seed).batch(number).inputs_NT)


def test_epochs_begin_elsewhere_and_come_in_another_order() -> None:
    feed = PackFeed(np.arange(1000, dtype=np.uint32), 1, 10, 0)
    starts = [
        [int(feed.batch(e * feed.per_epoch + at).inputs_NT[0, 0]) for at in range(feed.per_epoch)]
        for e in range(5)
    ]
    assert len({min(epoch) for epoch in starts}) > 1
    assert all(epoch != sorted(epoch) for epoch in starts)


@given(st.integers(2, 100), st.integers(1, 5), st.integers(1, 20))
def test_the_whole_has_every_token_once_and_in_order(tokens: int, rows: int, length: int) -> None:
    batches = stream_batches(np.arange(tokens, dtype=np.uint32), rows, length)
    targets = [int(it) for batch in batches for it in batch.targets_NU[batch.weights_NU > 0]]
    assert targets == list(range(1, tokens))
    assert sum(batch.weight for batch in batches) == tokens - 1


def test_too_little_text_and_wrong_sizes_are_said() -> None:
    with pytest.raises(ValueError, match="11 tokens, fewer than one block of 11"):
        PackFeed(STREAM, 2, 11)
    assert PackFeed(STREAM, 2, 10).per_epoch == 1
    with pytest.raises(ValueError, match="1 tokens, fewer"):
        stream_batches(STREAM[:1], 2, 4)


def test_blocks_without_a_target_are_left_out_by_hand() -> None:
    stream = np.array([3, 4, 5, 2, 3, 6, 7, 8, 9, 2], dtype=np.uint16)
    loss_mask = np.array([0, 0, 1, 1, 0, 0, 0, 0, 1, 1], dtype=np.uint8)
    feed = PackFeed(stream, rows=1, length=3, loss_mask=loss_mask)
    assert feed.per_epoch == 2  # the targets 3 6 7 of the second block are a question
    found = sorted(
        (it.targets_NU[0].tolist(), it.weights_NU[0].tolist())
        for it in map(feed.batch, range(feed.per_epoch))
    )
    assert found == [([4, 5, 2], [0, 1, 1]), ([8, 9, 2], [0, 1, 1])]
    with pytest.raises(ValueError, match="the data has no targets"):
        PackFeed(stream, 1, 3, loss_mask=np.zeros(10, dtype=np.uint8))
