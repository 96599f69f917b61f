from hypothesis import given, strategies as st

from unspool.decode.search.constrained_beam import allocate_banks


def test_by_hand():
    assert allocate_banks(6, [9, 9, 9]) == [2, 2, 2]
    assert allocate_banks(7, [9, 9, 9]) == [2, 2, 3]
    assert allocate_banks(2, [9, 9, 9]) == [0, 0, 2]
    assert allocate_banks(6, [9, 9, 0]) == [2, 4, 0]
    assert allocate_banks(6, [9, 0, 1]) == [5, 0, 1]
    assert allocate_banks(6, [9, 0, 9]) == [2, 0, 4]
    assert allocate_banks(3, [5, 0, 0]) == [3, 0, 0]


@given(st.integers(1, 20), st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_every_place_is_used_while_there_are_hypotheses(width, sizes):
    kept = allocate_banks(width, sizes)
    assert sum(kept) == min(width, sum(sizes))
    assert all(0 <= k <= size for k, size in zip(kept, sizes, strict=True))


@given(st.integers(1, 20), st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_no_bank_gets_less_than_its_share(width, sizes):
    share = width // len(sizes)
    assert all(k >= min(share, size) for k, size in zip(allocate_banks(width, sizes), sizes, strict=True))
