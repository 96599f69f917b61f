import math

import pytest
import torch

from unspool.heads.elementwise import Sigsoftmax, SigsoftmaxHeadConfig
from unspool.heads.softmax import Softmax


def test_by_hand():
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
