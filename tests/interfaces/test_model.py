import torch
from hypothesis import given, strategies as st

from unspool.interfaces import Step

STEP = Step(torch.arange(6.0).view(3, 2), hidden_ND=torch.arange(3.0)[:, None], log_norm_N=torch.arange(3.0))


def test_rows_are_reordered_repeated_and_dropped_by_hand():
    found = STEP.select(torch.tensor([2, 0, 2]))
    assert found.logp_NV.tolist() == [[4, 5], [0, 1], [4, 5]]
    assert found.hidden_ND.tolist() == [[2], [0], [2]]
    assert found.log_norm_N.tolist() == [2, 0, 2]
    assert (found.attention, found.score_NV, found.exits_NEV) == (None, None, None)


@given(st.lists(st.integers(0, 2), min_size=1), st.data())
def test_to_select_twice_is_to_select_once(rows, data):
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    twice = STEP.select(torch.tensor(rows)).select(torch.tensor(again))
    once = STEP.select(torch.tensor([rows[it] for it in again]))
    assert torch.equal(twice.logp_NV, once.logp_NV)
    assert torch.equal(twice.log_norm_N, once.log_norm_N)
