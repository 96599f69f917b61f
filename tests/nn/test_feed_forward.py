import pytest
import torch

from unspool.nn.transformer import ACTIVATIONS, FeedForward, swiglu


def test_swiglu_by_hand():
    # silu(0) = 0, silu(1) = 0.7310586; times up = (5, 2)
    assert swiglu(torch.tensor([0.0, 1.0, 5.0, 2.0])).tolist() == pytest.approx([0.0, 1.4621172])


def test_relu_network_by_hand():
    layer = FeedForward(2, 2, "relu", bias=False)
    layer.up.weight.data = torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    layer.down.weight.data = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert layer(torch.tensor([4.0, 5.0])).tolist() == [8.0, 0.0]
    assert layer(torch.tensor([-4.0, -5.0])).tolist() == [0.0, 15.0]


def test_plain_form_has_8_d_squared_weights():
    assert sum(p.numel() for p in FeedForward(16, 64, "gelu", bias=False).parameters()) == 8 * 16**2


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_same_at_every_position(activation):
    torch.manual_seed(0)
    layer = FeedForward(6, 10, activation, bias=True)
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(layer(x)[1, 2], layer(x[1, 2]))
