import torch

from unspool.decode.prefix_cache import Lane, LaneState


def test_lanes_of_the_same_rows_are_two():
    assert Lane([1]) != Lane([1])
    assert Lane([1]).open


def test_rows_of_a_state_are_chosen_again_and_again_without_touching_the_lane():
    lane = Lane([7, 8, 9])
    state = LaneState(lane, (0, 1, 2)).select(torch.tensor([2, 2, 0])).select(torch.tensor([1, 2]))
    assert state == LaneState(lane, (2, 0))
    assert lane.rows == [7, 8, 9]
