import math

import pytest
import torch

from unspool.heads.nonlinear import Mixture, MixtureHeadConfig
from unspool.heads.softmax import Softmax


@pytest.mark.parametrize(("bent", "score"), [(True, math.tanh(1)), (False, 1.0)])
def test_by_hand(bent, score):
    """π = (¼, ¾); the experts read tanh(±h) of width 1, or ±h itself."""
    head = Mixture(Softmax(1, 2), width=1, experts=2, bent=bent)
    head.prior_KD.data = torch.tensor([[0.0], [math.log(3)]])
    head.latent_KDD.data = torch.tensor([[[1.0]], [[-1.0]]])
    head.words.weight.data = torch.tensor([[1.0], [0.0]])
    first = 1 / (1 + math.exp(-score))
    expected = 0.25 * first + 0.75 * (1 - first)
    assert head(torch.tensor([1.0])).exp().tolist() == pytest.approx([expected, 1 - expected])


@pytest.mark.parametrize("bent", [True, False])
def test_breaks_the_bottleneck_that_softmax_cannot(bent):
    torch.manual_seed(0)
    hidden = torch.randn(60, 3, dtype=torch.float64)

    def rank(head):
        return torch.linalg.matrix_rank(head.double()(hidden), rtol=1e-9).item()

    assert rank(Softmax(3, 40)) == 4
    assert rank(MixtureHeadConfig(experts=3, bent=bent).build(3, 40)) > 20


def test_experts_are_counted():
    with pytest.raises(ValueError, match=r"MixtureHeadConfig\.experts is 0"):
        MixtureHeadConfig(experts=0)
