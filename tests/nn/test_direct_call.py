import torch
from torch import nn

from unspool.nn.linear import DirectCall


class Twice(DirectCall):
    def forward(self, x):
        return 2 * x


class QuickLinear(DirectCall, nn.Linear):
    pass


def test_it_is_called_as_any_module():
    x = torch.ones(1)
    assert Twice()(x) == 2
    with torch.inference_mode():
        assert Twice()(x) == 2
    layer = QuickLinear(2, 3)
    with torch.no_grad():
        assert torch.equal(
            layer(torch.ones(1, 2)), nn.functional.linear(torch.ones(1, 2), layer.weight, layer.bias)
        )


def test_hooks_are_called_with_and_without_gradients():
    module, heard = Twice(), []
    module.register_forward_hook(lambda m, args, out: heard.append(float(out)))
    module(torch.ones(1))
    with torch.no_grad():
        module(torch.full((1,), 2.0))
    assert heard == [2.0, 4.0]


def test_a_hook_may_change_the_input():
    module = Twice()
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    with torch.inference_mode():
        assert module(torch.ones(1)) == 4
