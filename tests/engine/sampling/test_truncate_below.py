import numba
import numpy as np
import pytest

from unspool.engine import sampling_passes


@numba.njit
def keep(key, floor, surplus, score, size, whole, scratch):
    return sampling_passes.truncate_below(key, floor, surplus, score, size, whole, scratch)


def left(scratch, size, whole):
    place = np.flatnonzero(scratch.score[:size] > -np.inf)
    return (
        (place if whole else scratch.token[place]).tolist(),
        scratch.score[place].tolist(),
        scratch.weight[place].tolist(),
    )


def test_many_remaining_tokens_are_masked(listed):
    scores = np.float32([-1, -3, -2, -3])
    scratch = listed(scores, [5, 6, 7, 8])
    size, whole, least = keep(scratch.score, np.float32(-2), 0, scratch.score, 4, True, scratch)
    assert (size, whole, least) == (4, True, -2)
    assert left(scratch, size, whole) == ([0, 2], [-1, -2], [5, 7])
    assert scratch.weight[:4].tolist() == [5, 0, 7, 0]


def test_surplus_ties_at_the_floor_are_cut(listed):
    scratch = listed(np.float32([-1, -3, -2, -3, -3]), [5, 6, 7, 8, 9])
    size, whole, least = keep(scratch.score, np.float32(-3), 2, scratch.score, 5, True, scratch)
    assert (size, whole, least) == (3, False, -3)
    assert left(scratch, size, whole) == ([0, 1, 2], [-1, -3, -2], [5, 6, 7])


@pytest.mark.parametrize("size", [40, 1000])
@pytest.mark.parametrize("share", [0.001, 0.3, 1.0])
def test_masking_and_compacting_keep_the_same_tokens_in_order(listed, size, share):
    scores = np.random.default_rng(size).normal(size=size).astype(np.float32)
    scratch, whole, kept = listed(scores, np.arange(size)), True, np.arange(size)
    score, now = scores.copy(), size
    for again in (1.0, share, 0.5 * share):
        floor = np.sort(scores)[-max(1, int(again * size))]
        now, whole, least = keep(scratch.score, floor, 0, scratch.score, now, whole, scratch)
        kept = kept[scores[kept] >= floor]
        assert left(scratch, now, whole) == (kept.tolist(), score[kept].tolist(), kept.astype(float).tolist())
        assert least == floor


def test_a_key_need_not_be_the_score(listed):
    scratch = listed(np.float32([3, 1, 2]), [1, 1, 1])
    scratch.key[:] = -9
    scratch.key[:3] = [-2, 0, -1]
    _, _, least = keep(scratch.key, np.float32(-1), 0, scratch.score, 3, True, scratch)
    assert (scratch.score[:3].tolist(), least) == ([-np.inf, 1, 2], 1)
