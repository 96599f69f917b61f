import numba
import numpy as np
import pytest

from unspool.engine import sampling_passes


@numba.njit
def keep(key, floor, surplus, score, size, whole, room):
    return sampling_passes.keep(key, floor, surplus, score, size, whole, room)


def left(room, size, whole):
    place = np.flatnonzero(room.score[:size] > -np.inf)
    return (
        (place if whole else room.token[place]).tolist(),
        room.score[place].tolist(),
        room.weight[place].tolist(),
    )


def test_many_are_marked_by_hand(listed):
    scores = np.float32([-1, -3, -2, -3])
    room = listed(scores, [5, 6, 7, 8])
    size, whole, least = keep(room.score, np.float32(-2), 0, room.score, 4, True, room)
    assert (size, whole, least) == (4, True, -2)
    assert left(room, size, whole) == ([0, 2], [-1, -2], [5, 7])
    assert room.weight[:4].tolist() == [5, 0, 7, 0]


def test_of_those_at_the_floor_the_last_go_by_hand(listed):
    room = listed(np.float32([-1, -3, -2, -3, -3]), [5, 6, 7, 8, 9])
    size, whole, least = keep(room.score, np.float32(-3), 2, room.score, 5, True, room)
    assert (size, whole, least) == (3, False, -3)
    assert left(room, size, whole) == ([0, 1, 2], [-1, -3, -2], [5, 6, 7])


@pytest.mark.parametrize("size", [40, 1000])
@pytest.mark.parametrize("share", [0.001, 0.3, 1.0])
def test_marked_or_moved_the_same_tokens_stay_in_order_again_and_again(listed, size, share):
    scores = np.random.default_rng(size).normal(size=size).astype(np.float32)
    room, whole, kept = listed(scores, np.arange(size)), True, np.arange(size)
    score, now = scores.copy(), size
    for again in (1.0, share, 0.5 * share):
        floor = np.sort(scores)[-max(1, int(again * size))]
        now, whole, least = keep(room.score, floor, 0, room.score, now, whole, room)
        kept = kept[scores[kept] >= floor]
        assert left(room, now, whole) == (kept.tolist(), score[kept].tolist(), kept.astype(float).tolist())
        assert least == floor


def test_a_key_need_not_be_the_score(listed):
    room = listed(np.float32([3, 1, 2]), [1, 1, 1])
    room.key[:] = -9
    room.key[:3] = [-2, 0, -1]
    _, _, least = keep(room.key, np.float32(-1), 0, room.score, 3, True, room)
    assert (room.score[:3].tolist(), least) == ([-np.inf, 1, 2], 1)
