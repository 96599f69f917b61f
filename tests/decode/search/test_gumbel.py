import math

import pytest
import torch

from unspool.decode.rng import numpy_generator as generator
from unspool.decode.search.stochastic_beam import add_gumbel, condition_on_maximum


def test_the_noise_is_the_requests_own():
    scores_NV = torch.zeros(3, 5)
    both = add_gumbel(scores_NV, [generator(1), generator(2)], [1, 2])
    assert torch.equal(both[:1], add_gumbel(scores_NV[:1], [generator(1)], [1]))
    assert torch.equal(both[1:], add_gumbel(scores_NV[1:], [generator(2)], [2]))
    assert not torch.equal(both[0], both[1])
    assert scores_NV.eq(0).all()


def test_the_highest_two_are_two_draws_without_replacement():
    p = torch.tensor([0.5, 0.3, 0.2])
    trials = 20_000
    keys = add_gumbel(p.log().expand(trials, 3), [generator(3)], [trials])
    order = keys.argsort(dim=-1, descending=True)
    for first in range(3):
        for second in range(3):
            if first != second:
                exact = (p[first] * p[second] / (1 - p[first])).item()
                share = ((order[:, 0] == first) & (order[:, 1] == second)).double().mean().item()
                assert abs(share - exact) < 4 * math.sqrt(exact * (1 - exact) / trials)


def test_impossible_tokens_stay_impossible():
    keys = add_gumbel(torch.tensor([[0.0, -math.inf]]), [generator(0)], [1])
    assert keys[0, 1] == -math.inf
    assert condition_on_maximum(keys, torch.tensor([2.0], dtype=torch.float64))[0].tolist() == [
        2.0,
        -math.inf,
    ]


def test_conditioned_by_hand():
    keys = torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64)
    moved = condition_on_maximum(keys, torch.tensor([0.5], dtype=torch.float64))
    for before, after in zip([1.0, 0.0, -1.0], moved[0].tolist(), strict=True):
        assert after == pytest.approx(-math.log(math.exp(-0.5) - math.exp(-1.0) + math.exp(-before)))


def test_conditioning_on_the_maximum_that_is_changes_nothing_even_far_out():
    keys = torch.tensor([[700.0, 650.0, -800.0], [3.0, 2.0, 1.0]], dtype=torch.float64)
    assert torch.allclose(condition_on_maximum(keys, keys[:, 0]), keys, rtol=0, atol=1e-12)
    far = condition_on_maximum(keys, torch.tensor([-900.0, -900.0], dtype=torch.float64))
    assert far.isfinite().all()
    assert (far.diff(dim=-1) <= 0).all()
    assert far[:, 0].tolist() == [-900.0, -900.0]
