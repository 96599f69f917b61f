import math

import pytest
import torch

from unspool.heads.elementwise import Capped, CappedHeadConfig
from unspool.heads.softmax import Softmax


def test_by_hand():
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
    with pytest.raises(ValueError, match="must be above 0, and finite"):
        CappedHeadConfig(cap)
