import math

import pytest
import torch
from torch import nn

from unspool.heads.softmax import Bilinear, BilinearHeadConfig, Softmax


def test_by_hand():
    head = Bilinear(Softmax(1, 2), width=2)
    head.form_DE.data = torch.tensor([[0.0], [1.0]])
    head.inner.weight.data = torch.tensor([[0.0], [math.log(3)]])
    assert head(torch.tensor([7.0, 1.0])).exp().tolist() == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("inner_width", [None, 2, 9])
@pytest.mark.parametrize("bias", [False, True])
def test_folding_the_form_away_leaves_every_probability_equal(inner_width, bias):
    head = BilinearHeadConfig(inner_width, bias=bias).build(5, 7)
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    plain, hidden = Softmax(5, 7), torch.randn(3, 5)
    plain.weight, plain.bias = nn.Parameter(head.weight), head.bias
    torch.testing.assert_close(plain(hidden), head(hidden))


def test_begins_as_the_plain_softmax():
    embed, hidden = nn.Embedding(7, 5), torch.randn(3, 5)
    head = BilinearHeadConfig(tied=True).build(5, 7, embed)
    torch.testing.assert_close(head(hidden), (hidden @ embed.weight.T).log_softmax(-1))


def test_may_be_tied_to_an_embedding_of_another_width():
    head = BilinearHeadConfig(tied=True).build(5, 7, nn.Embedding(7, 3))
    assert head.form_DE.shape == (5, 3)
    assert head(torch.randn(2, 5)).shape == (2, 7)


@pytest.mark.parametrize("inner_width", [0, -3])
def test_a_width_that_holds_nothing_is_refused(inner_width):
    with pytest.raises(
        ValueError, match=rf"BilinearHeadConfig\.inner_width is {inner_width}, .*whole number ≥ 1"
    ):
        BilinearHeadConfig(inner_width)


@pytest.mark.parametrize("inner_width", [None, 2, 9])
def test_tells_its_bias_and_what_bounds_its_rank(inner_width):
    head = BilinearHeadConfig(inner_width, bias=True).build(5, 7)
    assert head.bias is head.inner.bias is not None
    assert head.rank_limit == min(inner_width or 5, 5) + 2
    assert BilinearHeadConfig().build(5, 7).bias is None
