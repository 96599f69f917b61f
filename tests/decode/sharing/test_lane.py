import torch

from unspool.decode.prefix_cache import Slot, SlotState


def test_lanes_of_the_same_rows_are_two():
    assert Slot([1]) != Slot([1])
    assert Slot([1]).open


def test_rows_of_a_state_are_chosen_again_and_again_without_touching_the_lane():
    lane = Slot([7, 8, 9])
    state = SlotState(lane, (0, 1, 2)).select(torch.tensor([2, 2, 0])).select(torch.tensor([1, 2]))
    assert state == SlotState(lane, (2, 0))
    assert lane.rows == [7, 8, 9]
