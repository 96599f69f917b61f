from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.data.batch import ragged_from_lists

ROWS = ragged_from_lists([[5, 6, 7], [], [8, 9]])


def test_rows_stand_end_to_end() -> None:
    assert ROWS.values.tolist() == [5, 6, 7, 8, 9]
    assert ROWS.offsets.tolist() == [0, 3, 3, 5]
    assert (len(ROWS), ROWS.lengths.tolist()) == (3, [3, 0, 2])
    assert [ROWS[row].tolist() for row in range(3)] == [[5, 6, 7], [], [8, 9]]


def test_a_row_that_is_not_there_is_said() -> None:
    for row in (3, -1):
        with pytest.raises(IndexError, match="of 3"):
            ROWS[row]


def test_rows_are_padded_on_the_right_by_hand() -> None:
    padded = ROWS.padded(np.array([2, 0]), np.array([2, 3]))
    assert padded.tolist() == [[8, 9, 0], [5, 6, 7]]
    assert padded.dtype == np.int64
    assert ROWS.padded(np.array([0, 2]), np.array([2, 1]), skip=1).tolist() == [[6, 7], [9, 0]]


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=6), min_size=1, max_size=8), st.randoms())
def test_padding_keeps_every_row(rows: list[list[int]], random) -> None:  # type: ignore[no-untyped-def]
    kept = ragged_from_lists(rows)
    order = random.sample(range(len(rows)), len(rows))
    padded = kept.padded(np.array(order), kept.lengths[order])
    width = max(map(len, rows))
    assert padded.tolist() == [rows[row] + [0] * (width - len(rows[row])) for row in order]
