import math

import pytest
import torch
from torch import nn

from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, TiedSoftmax


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


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_is_that_of_the_log_probabilities(tied, bias):
    embed = nn.Embedding(7, 4)
    head = SoftmaxHeadConfig(tied, bias).build(4, 7, embed)
    assert (head.weight is embed.weight) == tied
    if bias:
        nn.init.normal_(head.bias)
    hidden, targets, weights = torch.randn(5, 4), torch.tensor([0, 1, 6, 3, 3]), torch.rand(5)
    logp_MV = head(hidden)
    loss, nll = head.loss(hidden, targets, weights, smoothing=0.1)
    torch.testing.assert_close(nll, -(weights * logp_MV[range(5), targets]).sum())
    torch.testing.assert_close(loss, 0.9 * nll - 0.1 * (weights * logp_MV.mean(-1)).sum())
    loss.backward()
    assert head.weight.grad.abs().sum() > 0
    assert not bias or head.bias.grad.abs().sum() > 0


@pytest.mark.parametrize("embed", [None, nn.Embedding(7, 3)])
def test_a_tied_head_needs_a_fitting_embedding(embed):
    with pytest.raises(ValueError, match=r"\(7, 4\).*set tied to false"):
        SoftmaxHeadConfig(tied=True).build(4, 7, embed)
