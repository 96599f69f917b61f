import pytest
import torch

from unspool.lab.claims.softmax_saturation import CLAIM, gradient


def test_the_norm_of_the_jacobian_by_hand():
    # α = (½, ½): diag(α) − ααᵀ = ¼ [[1, −1], [−1, 1]], whose norm is ½.
    assert gradient(torch.zeros(1, 2)) == pytest.approx(0.5)
    assert gradient(torch.tensor([[100.0, 0.0]])) == pytest.approx(0.0, abs=1e-9)


def test_it_is_the_norm_that_autograd_finds():
    scores = torch.randn(5, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda it: it.softmax(-1), scores)
    assert gradient(scores[None]) == pytest.approx(float(jacobian.norm()))


def test_every_part_can_fail(every_part_can_fail):
    good = {"variance": [1.0, 1.0, 1.01], "plain": [0.3, 0.2, 0.05], "scaled": [0.2, 0.25, 0.24]}
    changes = [
        {"variance": [1.0, 2.0]},
        {"plain": [0.3, 0.2, 0.19]},
        {"plain": [0.3, 0.01, 0.02]},
        {"scaled": [0.2, 0.2, 0.01]},
    ]
    every_part_can_fail(CLAIM, good, changes)
