import math

import pytest
import torch

from unspool.heads.softmax import Softmax, Tempered, TemperedHeadConfig


def test_by_hand():
    head = Tempered(Softmax(4, 2), width=4)
    head.inner.weight.data = torch.tensor([[0.0] * 4, [2 * math.log(3), 0.0, 0.0, 0.0]])
    assert head(torch.tensor([1.0, 5.0, 0.0, 0.0])).exp().tolist() == pytest.approx([0.25, 0.75])


def test_scores_have_variance_one_at_first():
    torch.manual_seed(0)
    head = TemperedHeadConfig().build(256, 400)
    scores = torch.randn(500, 256) @ head.weight.T
    assert scores.var().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("learnt", [False, True])
def test_beta_learns_only_when_asked(learnt):
    head = TemperedHeadConfig(learnt=learnt).build(4, 5)
    assert head.beta.item() == 0.5
    head.loss(torch.randn(3, 4), torch.tensor([1, 2, 3]), torch.ones(3))[0].backward()
    assert (head.beta.grad is not None) == learnt


def test_the_matrix_and_the_bias_say_it_all():
    head, hidden = TemperedHeadConfig(bias=True).build(4, 5), torch.randn(3, 4)
    torch.nn.init.normal_(head.bias)
    torch.testing.assert_close(head(hidden), (hidden @ head.weight.T + head.bias).log_softmax(-1))
    assert TemperedHeadConfig().build(4, 5).bias is None
