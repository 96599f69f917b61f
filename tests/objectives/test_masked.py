import torch
from hypothesis import given, settings, strategies as st

from unspool.objectives.masked import Masked


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_a_random_number_of_real_places_is_hidden_and_a_row_counts_as_its_tokens(lengths, seed):
    torch.manual_seed(seed)
    lengths_N = torch.tensor(lengths)
    weights_NT = Masked().weigh(lengths_N, torch.rand(len(lengths)), torch.rand(len(lengths), max(lengths)))
    hidden_N = (weights_NT > 0).sum(1)
    assert (hidden_N >= 1).all()
    assert (hidden_N <= lengths_N).all()
    assert all(not weights_NT[row, length:].any() for row, length in enumerate(lengths))
    torch.testing.assert_close(weights_NT.sum(1), lengths_N.float())


def test_every_number_is_as_frequent():
    torch.manual_seed(0)
    weights_NT = Masked().weigh(torch.full((6000,), 3), torch.rand(6000), torch.rand(6000, 3))
    counts = torch.bincount((weights_NT > 0).sum(1), minlength=4)
    assert counts[0] == 0
    assert (counts[1:] / 6000 - 1 / 3).abs().max() < 0.03
    places = (weights_NT > 0).float().mean(0)
    assert (places - 2 / 3).abs().max() < 0.03
