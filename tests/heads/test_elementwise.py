import math

import pytest
import torch

from unspool.heads.nonlinear import (
    Capped,
    CappedHeadConfig,
    ElementwiseSoftmax,
    Sigsoftmax,
    SigsoftmaxHeadConfig,
)
from unspool.heads.softmax import Softmax


class Elementwise(ElementwiseSoftmax):
    def __init__(self, words, function):
        super().__init__(words)
        self.function = function


def test_by_hand():
    """Squares of 0, 1 and −1: two words are as probable as each other, e times as probable as the first."""
    head = Elementwise(Softmax(1, 3), torch.square)
    head.words.weight.data = torch.tensor([[0.0], [1.0], [-1.0]])
    total = 1 + 2 * math.e
    found = head(torch.tensor([1.0])).exp().tolist()
    assert found == pytest.approx([1 / total, math.e / total, math.e / total])
    assert head.weight is None
    assert head.rank_limit is None


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_its_loss_and_gradients_are_those_of_what_it_says(smoothing):
    torch.manual_seed(0)
    head = Elementwise(Softmax(4, 9), torch.tanh).double()
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
    head, hidden = Elementwise(Softmax(4, 9), lambda scores: scores), torch.randn(3, 4)
    torch.testing.assert_close(head(hidden), head.words(hidden))


def test_capped_by_hand():
    """2·tanh(z/2) of 2·artanh(1/2) = log 3 is 1, of −log 3 is −1."""
    head = Capped(Softmax(1, 3), cap=2.0)
    head.words.weight.data = torch.tensor([[0.0], [math.log(3)], [-math.log(3)]])
    total = 1 + math.e + 1 / math.e
    assert head(torch.tensor([1.0])).exp().tolist() == pytest.approx(
        [1 / total, math.e / total, 1 / math.e / total]
    )


def test_no_score_grows_beyond_the_cap_and_a_high_cap_changes_nothing():
    torch.manual_seed(0)
    hidden = 50 * torch.randn(7, 4)
    low, high = CappedHeadConfig(3.0).build(4, 9), CappedHeadConfig(1e6).build(4, 9)
    high.load_state_dict(low.state_dict())
    with torch.no_grad():
        assert low.logits(hidden).abs().max() <= 3.0
        torch.testing.assert_close(high(hidden), low.words(hidden), atol=1e-3, rtol=1e-4)


def test_its_loss_is_its_own():
    torch.manual_seed(0)
    head = CappedHeadConfig(2.0).build(4, 9).double()
    hidden = torch.randn(6, 4, dtype=torch.float64)
    targets, weights = torch.tensor([0, 1, 2, 3, 4, 8]), torch.ones(6, dtype=torch.float64)
    loss, _ = head.loss(hidden, targets, weights)
    torch.testing.assert_close(loss, -head(hidden)[range(6), targets].sum())


@pytest.mark.parametrize("cap", [0.0, -1.0, math.inf])
def test_a_cap_is_a_height(cap):
    with pytest.raises(ValueError, match=r"CappedHeadConfig\.cap is .*a finite number, 0 < cap"):
        CappedHeadConfig(cap)


def test_sigsoftmax_by_hand():
    """exp(z)·σ(z) is ½ at 0, 2·⅔ at log 2 and ½·⅓ at −log 2: in sixths 3, 8 and 1."""
    head = Sigsoftmax(Softmax(1, 3))
    head.words.weight.data = torch.tensor([[0.0], [math.log(2)], [-math.log(2)]])
    assert head(torch.tensor([1.0])).exp().tolist() == pytest.approx([3 / 12, 8 / 12, 1 / 12])


def test_large_scores_are_those_of_softmax_and_small_ones_count_twice():
    head = SigsoftmaxHeadConfig().build(1, 2)
    head.words.weight.data = torch.tensor([[0.0], [1.0]])
    with torch.no_grad():
        high = head(torch.tensor([300.0]))
        low = head(torch.tensor([-300.0]))
    assert high[0].item() == pytest.approx(-300.0 + math.log(0.5), abs=1e-3)
    assert low[1].item() == pytest.approx(-600.0 - math.log(0.5), abs=1e-3)


def test_its_log_probabilities_have_a_rank_that_softmax_cannot_have():
    torch.manual_seed(0)
    hidden = torch.randn(60, 3, dtype=torch.float64)
    head = SigsoftmaxHeadConfig().build(3, 40).double()
    assert torch.linalg.matrix_rank(head(hidden), rtol=1e-9).item() > 10


def test_scores_in_half_precision_are_squashed_in_single():
    # In bfloat16, 2.5 and 2.5 + log σ(2.5) are 0.3 % apart from what they are rounded to.
    head = Sigsoftmax(Softmax(1, 2)).bfloat16()
    head.words.weight.data = torch.tensor([[2.5], [0.0]], dtype=torch.bfloat16)
    with torch.no_grad():
        found = head(torch.ones(1, 1, dtype=torch.bfloat16)).double()
    scores = torch.tensor([2.5, 0.0], dtype=torch.float64)
    want = (scores + torch.nn.functional.logsigmoid(scores)).log_softmax(-1)
    torch.testing.assert_close(found[0], want, rtol=1e-5, atol=1e-5)
