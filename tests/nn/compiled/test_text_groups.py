import numpy as np
import pytest

from unspool.engine.transformer_engine import text_groups


@pytest.mark.parametrize(
    ("lengths", "want"),
    [
        ([3], [(0, 1)]),
        ([7, 1, 1], [(0, 2), (2, 3)]),
        ([40, 2, 3], [(0, 1), (1, 3)]),
        ([2, 40], [(0, 1), (1, 2)]),
    ],
)
def test_texts_are_read_whole_and_a_few_at_a_time(lengths, want):
    assert list(text_groups(lengths, 8)) == want


def test_every_text_is_in_one_group():
    lengths = np.random.default_rng(0).integers(1, 12, 50)
    groups = list(text_groups(lengths.tolist(), 8))
    assert [n for first, stop in groups for n in range(first, stop)] == list(range(50))
    assert all(lengths[first:stop].sum() <= 8 or stop == first + 1 for first, stop in groups)
