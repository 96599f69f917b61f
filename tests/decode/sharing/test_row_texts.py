from hypothesis import given, strategies as st

from unspool.decode.prefix_cache import RowTokens


def texts_of(*rows):
    texts = RowTokens()
    texts.add(rows)
    return texts


def test_the_longest_common_beginning():
    texts = texts_of([1, 2, 3], [1, 2, 4, 5], [7])
    assert texts.nearest([1, 2, 4, 9]) == (1, 3)
    assert texts.nearest([1, 2, 3, 4]) == (0, 3)
    assert texts.nearest([9])[1] == 0
    assert texts.nearest([])[1] == 0
    assert RowTokens().nearest([1]) == (0, 0)


def test_rows_grow_shrink_and_move():
    texts = texts_of([1], [2])
    texts.append([1], [list(range(100))])  # longer than there was room for
    texts.select([1, 1, 0])
    texts.forget([0], 99)
    assert texts.lengths_N.tolist() == [2, 101, 1]
    assert texts.nearest([2, 0, 1]) == (1, 3)
    assert texts.begins_with(1, 0)
    assert not texts.begins_with(0, 1)
    assert not texts.begins_with(2, 0)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=6), st.data())
def test_nearest_is_what_looking_at_every_row_finds(rows, data):
    text = data.draw(st.lists(st.integers(0, 2), max_size=10))

    def common(row):
        return next(
            (k for k, (a, b) in enumerate(zip(row, text, strict=False)) if a != b), min(len(row), len(text))
        )

    row, length = texts_of(*rows).nearest(text)
    assert length == max(map(common, rows)) == common(rows[row])
