import numpy as np
import pytest

from unspool.nn.compiled.encoder import _groups
from unspool.nn.compiled.engine import SLICE


@pytest.mark.parametrize(
    ("lengths", "want"),
    [
        ([3], [(0, 1)]),
        ([SLICE - 1, 1, 1], [(0, 2), (2, 3)]),
        ([5 * SLICE, 2, 3], [(0, 1), (1, 3)]),
        ([2, 5 * SLICE], [(0, 1), (1, 2)]),
    ],
)
def test_sources_are_read_whole_and_a_few_at_a_time(lengths, want):
    assert list(_groups(np.array(lengths))) == want


def test_every_source_is_in_one_group():
    lengths = np.random.default_rng(0).integers(1, 3 * SLICE // 2, 50)
    groups = list(_groups(lengths))
    assert [n for first, stop in groups for n in range(first, stop)] == list(range(50))
    assert all(lengths[first:stop].sum() <= SLICE or stop == first + 1 for first, stop in groups)
