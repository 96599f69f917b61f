import math

import numpy as np
import pytest

from unspool.engine.best_tokens import FIELDS, rank_beams

SCORES = np.array([[-1.0, -2.0, -3.0], [-0.5, -4.0, -0.25], [-1.0, -math.inf, -1.0]], np.float32)


def of(beams, count, scores, covered=(), keys=None):
    """Fields of every candidate, from the sorted rows."""
    keys = scores if keys is None else keys
    tokens = np.argsort(-keys, axis=1, kind="stable")
    best = np.take_along_axis(keys, tokens, 1)
    found = rank_beams(beams, count, covered, best, tokens, 2 * scores, scores)
    return [[fields[at : at + FIELDS] for at in range(0, len(fields), FIELDS)] for fields in found]


def test_by_hand():
    first, second = of([[-1.0, -2.0], [-7.0]], 3, SCORES, covered=[-0.5, -0.25, 0.0])
    assert first == [
        [0, 0, -2.0, -1.0, -2.0, -0.5, -2.0],
        [1, 2, -0.5, -0.25, -2.25, -0.25, -2.25],
        [1, 0, -1.0, -0.5, -2.5, -0.25, -2.5],
    ]
    assert [fields[1] for fields in second[:2]] == [0, 2]  # of equal sums the smaller token
    assert second[2] == [-math.inf] * FIELDS  # cut tokens are not candidates


def test_keys_order_and_scores_are_added():
    ((best, _),) = of([[-1.0]], 2, SCORES[:1], keys=np.array([[0.0, 9.0, 8.0]], np.float32))
    assert best == [0, 1, -4.0, -2.0, -3.0, 0.0, 8.0]


def test_of_equal_totals_the_earlier_row_is_first():
    (fields,) = of([[-1.0, -1.0]], 4, np.full((2, 3), -2.0, np.float32))
    assert [(parent, token) for parent, token, *_ in fields] == [(0, 0), (0, 1), (0, 2), (1, 0)]


@pytest.mark.parametrize("sizes", [[3], [1, 2], [1, 1, 1]])
def test_beams_are_independent(sizes):
    together = of([[-1.0] * size for size in sizes], 2, SCORES)
    first = 0
    for size, fields in zip(sizes, together, strict=True):
        assert [fields] == of([[-1.0] * size], 2, SCORES[first : first + size])
        first += size
