import numpy as np
import pytest

from unspool.engine.transformer_engine import group_sources


@pytest.mark.parametrize(
    ("lengths", "want"),
    [
        ([3], [(0, 1)]),
        ([7, 1, 1], [(0, 2), (2, 3)]),
        ([40, 2, 3], [(0, 1), (1, 3)]),
        ([2, 40], [(0, 1), (1, 2)]),
    ],
)
def test_sources_are_grouped_without_splitting(lengths, want):
    assert list(group_sources(lengths, 8)) == want


def test_every_text_is_in_one_group():
    lengths = np.random.default_rng(0).integers(1, 12, 50)
    groups = list(group_sources(lengths.tolist(), 8))
    assert [n for first, stop in groups for n in range(first, stop)] == list(range(50))
    assert all(lengths[first:stop].sum() <= 8 or stop == first + 1 for first, stop in groups)
