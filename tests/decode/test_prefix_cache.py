import torch
from hypothesis import given, strategies as st

from unspool.decode.prefill import MAX_SEQUENCES, PrefixCache, Slot, SlotState, longest_match


def test_longest_match_by_hand():
    rows = [[1, 2, 3], [1, 2, 4, 5], [7]]
    assert longest_match(rows, [1, 2, 4, 9]) == (1, 3)
    assert longest_match(rows, [1, 2, 3, 4]) == (0, 3)
    assert longest_match(rows, [9])[1] == 0
    assert longest_match(rows, [])[1] == 0
    assert longest_match([], [1]) == (0, 0)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=6), st.data())
def test_longest_match_equals_a_comparison_with_every_row(rows, data):
    text = data.draw(st.lists(st.integers(0, 2), max_size=10))

    def common(row):
        return next(
            (k for k, (a, b) in enumerate(zip(row, text, strict=False)) if a != b), min(len(row), len(text))
        )

    row, length = longest_match(rows, text)
    assert length == max(map(common, rows)) == common(rows[row])


def test_the_least_recently_used_row_is_evicted_first_and_a_longer_row_replaces_its_prefix():
    tokens = [[1], [2], [3], [1, 4]]
    cache = PrefixCache(max_bytes=2)
    for row in (0, 1, 2):
        cache.insert(row, tokens)
    cache.mark_used(1)
    cache.mark_used(99)  # a row of an open slot
    assert [slot.rows for slot in cache.slots] == [[0], [2], [1]]
    cache.insert(3, tokens)
    assert [slot.rows for slot in cache.slots] == [[2], [1], [3]]
    cache.evict_until_fits(len)  # a byte for each
    assert [slot.rows for slot in cache.slots] == [[1], [3]]


def test_the_cache_keeps_only_the_most_recently_used_sequences():
    tokens = [[row] for row in range(MAX_SEQUENCES + 2)]
    cache = PrefixCache(max_bytes=len(tokens))
    for row in range(len(tokens)):
        cache.insert(row, tokens)
    cache.evict_until_fits(len)  # a byte for each, so that memory suffices for all
    assert [slot.rows for slot in cache.slots] == [[row] for row in range(2, len(tokens))]


def test_a_row_of_another_owner_is_not_replaced():
    cache = PrefixCache(max_bytes=9)
    cache.insert(0, [[1], [1, 2]], "anna")
    cache.insert(1, [[1], [1, 2]], "ben")
    assert [(slot.rows, slot.owner) for slot in cache.slots] == [([0], "anna"), ([1], "ben")]


def test_selecting_rows_of_a_state_does_not_change_its_slot():
    slot = Slot([7, 8, 9])
    state = SlotState(slot, (0, 1, 2)).select(torch.tensor([2, 2, 0])).select(torch.tensor([1, 2]))
    assert state == SlotState(slot, (2, 0))
    assert slot.rows == [7, 8, 9]
    assert Slot([1]) != Slot([1])
