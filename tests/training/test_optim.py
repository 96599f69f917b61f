import math

import pytest
import torch
from torch import nn

from unspool.nn.linear import Linear
from unspool.training.optim import AdamW
from unspool.training.settings import TrainSettings


def optimizer(module, **options):
    return AdamW(module.named_parameters(), TrainSettings(updates=1, **options))


def test_two_steps_by_hand():
    layer = nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(1.0)
    adamw = optimizer(layer, betas=(0.5, 0.75), eps=1e-8, weight_decay=0.1)
    weight, bias = 2.0, 1.0
    m = v = 0.0
    for t, g in ((1, 3.0), (2, -1.0)):
        layer.weight.grad, layer.bias.grad = torch.full((1, 1), g), torch.full((1,), g)
        adamw.step(t, 0.1)
        m, v = 0.5 * m + 0.5 * g, 0.75 * v + 0.25 * g * g
        step = (m / (1 - 0.5**t)) / (math.sqrt(v / (1 - 0.75**t)) + 1e-8)
        weight, bias = weight - 0.1 * (step + 0.1 * weight), bias - 0.1 * step
        assert layer.weight.item() == pytest.approx(weight, rel=1e-6)
        assert layer.bias.item() == pytest.approx(bias, rel=1e-6)  # no decay


def test_it_is_torchs_own():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 4), nn.Linear(5, 4)
    theirs.load_state_dict(ours.state_dict())
    adamw = optimizer(ours, weight_decay=0.1, betas=(0.9, 0.95), eps=1e-8)
    groups = [
        {"params": [theirs.weight], "weight_decay": 0.1},
        {"params": [theirs.bias], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    for t in range(1, 6):
        x = torch.randn(3, 5)
        for model in (ours, theirs):
            model.zero_grad()
            model(x).square().sum().backward()
        reference.param_groups[0]["lr"] = reference.param_groups[1]["lr"] = 0.1 / t
        reference.step()
        adamw.step(t, 0.1 / t)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b)


def test_products_see_a_step_at_once():
    layer, x = Linear(8, 8), torch.randn(4, 8)
    with torch.no_grad():
        before = layer(x)
    layer.weight.grad = torch.ones(8, 8)
    optimizer(layer).step(1, 0.1)
    with torch.no_grad():
        after = layer(x)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, x @ layer.weight.T)


def test_optimizer_state_is_saved_and_restored():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    one, two = optimizer(first), optimizer(second)
    for it in first.parameters():
        it.grad = torch.randn_like(it)
    one.step(1, 0.1)
    assert set(one.moments()) == {f"{name}/exp_avg{sq}" for name in ("weight", "bias") for sq in ("", "_sq")}
    two.remember(one.moments())
    assert all(torch.equal(two.moments()[name], it) for name, it in one.moments().items())
    assert two.moments()["bias/exp_avg"].data_ptr() != one.moments()["bias/exp_avg"].data_ptr()


def test_only_what_has_a_gradient_changes():
    layer = nn.Linear(2, 2)
    bias = layer.bias.detach().clone()
    layer.weight.grad = torch.ones(2, 2)
    adamw = optimizer(layer)
    adamw.step(1, 0.1)
    assert torch.equal(layer.bias, bias)
    assert len(adamw.gradients()) == 1
    adamw.zero_grad()
    assert adamw.gradients() == []


def test_a_model_that_cannot_learn_is_refused():
    layer = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable parameters"):
        optimizer(layer)
