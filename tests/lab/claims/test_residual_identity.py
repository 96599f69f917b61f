import torch

from unspool.lab.claims.residual_identity import CLAIM, WIDTH, Stack, error


def test_a_stack_whose_layers_say_nothing_is_the_identity_with_residuals():
    x = torch.randn(3, WIDTH)
    for residual, wanted in ((True, x), (False, torch.zeros_like(x))):
        model = Stack(4, residual)
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
        assert torch.equal(model(x), wanted)


def test_one_layer_learns_something():
    before, _ = error(1, True, 1, 1)
    after, first = error(1, True, 1, 60)
    assert after < before
    assert first > 0


def test_every_part_can_fail(every_part_can_fail):
    good = {
        **{"plain": [0.1, 0.2, 0.95], "residual": [0.1, 0.05, 0.01]},
        **{"plain gradient": [1.0, 1e-6], "residual gradient": [1.0, 1.0]},
    }
    changes = [
        {"plain": [0.1, 0.2, 0.8]},
        {"plain": [0.1, 0.6, 0.95]},
        {"residual": [0.1, 0.2]},
        {"plain gradient": [1.0, 0.1]},
    ]
    every_part_can_fail(CLAIM, good, changes)
