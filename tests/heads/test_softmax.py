import math

import pytest
import torch
from torch import nn

from unspool.heads.softmax import Softmax, TiedSoftmax


def test_by_hand():
    head = Softmax(1, 3)
    head.weight.data = torch.tensor([[0.0], [math.log(2)], [math.log(5)]])
    assert head(torch.tensor([1.0])).exp().tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_a_bias_is_added():
    head = Softmax(1, 2, bias=True)
    head.weight.data.zero_()
    head.bias.data = torch.tensor([0.0, math.log(3)])
    assert head(torch.ones(1)).exp().tolist() == pytest.approx([0.25, 0.75])


def test_tied_equals_untied_with_the_same_rows_and_owns_nothing():
    embed = nn.Embedding(7, 4)
    head, tied = Softmax(4, 7), TiedSoftmax(embed)
    head.weight.data = embed.weight.data
    hidden = torch.randn(3, 4)
    torch.testing.assert_close(tied(hidden), head(hidden))
    assert list(tied.parameters()) == []
    assert tied.weight is embed.weight


@pytest.mark.parametrize("rows", [1, 5])
def test_always_normalised(rows):
    with torch.no_grad():
        logp = Softmax(6, 50)(100 * torch.randn(rows, 6))
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(rows))
