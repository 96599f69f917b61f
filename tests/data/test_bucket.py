from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from unspool.data.batch import Batch, ragged_from_lists
from unspool.data.batches import BucketFeed, batch_boundaries, bucketed_batches, round_up_lengths
from unspool.data.examples import Sequences

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)


def examples(lengths: list[tuple[int, int]], pairs: bool = True) -> Sequences:
    """Row i says i + 3 again and again: a batch tells which rows it holds."""
    source, target = (
        ragged_from_lists([[1, *[row + 3] * pair[side], row + 3] for row, pair in enumerate(lengths)])
        for side in (0, 1)
    )
    return Sequences(target, source if pairs else None)


def rows_of(batch: Batch) -> list[int]:
    ends = batch.lengths_N - 1
    return (batch.targets_NU[torch.arange(len(ends)), ends] - 3).tolist()


def cost(batch: Batch) -> int:
    sides = [batch.inputs_NT] + ([] if batch.source_NS is None else [batch.source_NS])
    return max(side.numel() for side in sides)


def same(one: Batch, other: Batch) -> bool:
    names = ("inputs_NT", "lengths_N", "targets_NU", "weights_NU", "source_NS", "source_lengths_N")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all((a is None and b is None) or torch.equal(a, b) for a, b in pairs)


def test_cuts_by_hand() -> None:
    # 2·3 ≤ 7 but 3·3 > 7; 1·3 ≤ 7 but 2·4 > 7; then each alone. With 8, 2·4 fits.
    assert batch_boundaries(np.array([2, 3, 3, 4, 4, 7]), 7).tolist() == [0, 2, 3, 4, 5, 6]
    assert batch_boundaries(np.array([2, 3, 3, 4, 4, 7]), 8).tolist() == [0, 2, 4, 5, 6]


def test_lengths_are_rounded_up_by_an_eighth() -> None:
    sizes = np.array([1, 2, 8, 9, 15, 16, 17, 18, 31, 33, 64, 65, 100])
    assert round_up_lengths(sizes).tolist() == [1, 2, 8, 9, 15, 16, 18, 18, 32, 36, 64, 72, 104]


@given(LENGTHS, st.integers(31, 120), st.integers(0, 5), st.booleans(), st.integers(0, 3))
def test_an_epoch_has_every_example_once_and_no_batch_is_too_large(
    lengths: list[tuple[int, int]], tokens: int, seed: int, pairs: bool, epoch: int
) -> None:
    feed = BucketFeed(examples(lengths, pairs), tokens, seed)
    batches = [feed.batch(epoch * feed.per_epoch + at) for at in range(feed.per_epoch)]
    assert Counter(row for batch in batches for row in rows_of(batch)) == Counter(range(len(lengths)))
    assert all(cost(batch) <= tokens for batch in batches)


@given(LENGTHS, st.integers(31, 120), st.integers(0, 5), st.data())
def test_a_batch_depends_on_its_number_alone(
    lengths: list[tuple[int, int]], tokens: int, seed: int, data: st.DataObject
) -> None:
    feed = BucketFeed(examples(lengths), tokens, seed)
    numbers = data.draw(st.lists(st.integers(0, 4 * feed.per_epoch), min_size=1, max_size=8))
    in_any_order = {number: feed.batch(number) for number in numbers}
    for number, batch in in_any_order.items():
        assert same(batch, BucketFeed(examples(lengths), tokens, seed).batch(number))


def test_resuming_in_the_middle_of_an_epoch_goes_on_as_if_nothing_had_happened() -> None:
    lengths = [(row % 13, row % 7) for row in range(200)]
    whole_run = BucketFeed(examples(lengths), 64, 3)
    assert whole_run.per_epoch > 10
    first = [whole_run.batch(number) for number in range(3 * whole_run.per_epoch)]
    stop = whole_run.per_epoch + 5
    resumed = BucketFeed(examples(lengths), 64, 3)
    assert all(same(first[number], resumed.batch(number)) for number in range(stop, len(first)))


def test_processes_share_the_sequence_of_one() -> None:
    lengths = [(row % 13, row % 7) for row in range(100)]
    alone = BucketFeed(examples(lengths), 64, 3)
    updates, accumulated, processes = 6, 2, 3
    shared: dict[int, Batch] = {}
    for rank in range(processes):
        feed = BucketFeed(examples(lengths), 64, 3)
        for update in range(updates):
            for micro in range(accumulated):
                number = (update * accumulated + micro) * processes + rank
                assert number not in shared
                shared[number] = feed.batch(number)
    assert sorted(shared) == list(range(updates * accumulated * processes))
    assert all(same(alone.batch(number), batch) for number, batch in shared.items())


def test_epochs_differ_in_what_a_batch_holds_and_in_the_order_of_batches() -> None:
    feed = BucketFeed(examples([(5, 5)] * 40 + [(9, 9)] * 40), 60, 0)
    epochs = [
        [frozenset(rows_of(feed.batch(e * feed.per_epoch + at))) for at in range(feed.per_epoch)]
        for e in (0, 1)
    ]
    assert not set(epochs[0]) & set(epochs[1])
    lengths = [[max(rows) < 40 for rows in epoch] for epoch in epochs]
    assert lengths[0] != lengths[1]
    assert sorted(lengths[0]) == sorted(lengths[1])


def test_little_is_padding() -> None:
    random = np.random.default_rng(0)
    sizes = np.maximum(random.poisson(9, 5000), 1)
    near = np.maximum(sizes + random.integers(-2, 3, 5000), 1)
    feed = BucketFeed(examples(list(zip(sizes.tolist(), near.tolist(), strict=True))), 1024, 0)
    batches = [feed.batch(at) for at in range(feed.per_epoch)]
    padded = sum(batch.inputs_NT.numel() for batch in batches)
    assert sum(batch.weight for batch in batches) / padded > 0.95


@given(LENGTHS, st.integers(31, 120), st.booleans())
def test_the_whole_has_every_example_once_and_is_always_the_same(
    lengths: list[tuple[int, int]], tokens: int, pairs: bool
) -> None:
    batches = bucketed_batches(examples(lengths, pairs), tokens)
    assert Counter(row for batch in batches for row in rows_of(batch)) == Counter(range(len(lengths)))
    assert all(cost(batch) <= tokens for batch in batches)
    again = bucketed_batches(examples(lengths, pairs), tokens)
    assert all(same(one, other) for one, other in zip(batches, again, strict=True))


def test_an_example_as_large_as_the_budget_is_a_batch_of_its_own() -> None:
    feed = BucketFeed(examples([(1, 1), (16, 2), (1, 1)]), 17, 0)
    assert sorted(len(rows_of(feed.batch(at))) for at in range(feed.per_epoch)) == [1, 2]


def test_an_example_larger_than_the_budget_is_reported() -> None:
    with pytest.raises(ValueError, match=r"example 2 has 18 tokens, but a batch holds 17"):
        BucketFeed(examples([(1, 1), (17, 2)]), 17, 0)
