import math

import pytest
import torch

from unspool.heads.elementwise import BentScores
from unspool.heads.softmax import Softmax


def test_by_hand():
    """Squares of 0, 1 and −1: two words are as probable as each other, e times as probable as the first."""
    head = BentScores(Softmax(1, 3), torch.square)
    head.words.weight.data = torch.tensor([[0.0], [1.0], [-1.0]])
    total = 1 + 2 * math.e
    found = head(torch.tensor([1.0])).exp().tolist()
    assert found == pytest.approx([1 / total, math.e / total, math.e / total])
    assert head.weight is None
    assert head.rank_limit is None


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_its_loss_and_gradients_are_those_of_what_it_says(smoothing):
    torch.manual_seed(0)
    head = BentScores(Softmax(4, 9), torch.tanh).double()
    hidden = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    targets, weights = torch.tensor([0, 1, 2, 3, 4, 8]), torch.rand(6, dtype=torch.float64)
    logp = head(hidden)
    mean = (1 - smoothing) * logp[range(6), targets] + smoothing * logp.mean(-1)
    (expected,) = torch.autograd.grad(-(weights * mean).sum(), hidden)
    loss, nll = head.loss(hidden, targets, weights, smoothing)
    (found,) = torch.autograd.grad(loss, hidden)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(nll, -(weights * logp[range(6), targets]).sum())


def test_without_a_bend_it_is_softmax():
    torch.manual_seed(0)
    head, hidden = BentScores(Softmax(4, 9), lambda scores: scores), torch.randn(3, 4)
    torch.testing.assert_close(head(hidden), head.words(hidden))
