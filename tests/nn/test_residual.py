import pytest
import torch

from unspool.nn.norms import PLACES, ResidualShape, after, both, post, pre


def double(x):
    return 2 * x


def plus_one(x):
    return x + 1


def times_ten(x):
    return 10 * x


X = torch.tensor([1.0, 3.0])


def test_each_place_by_hand():
    # x = (1, 3), LN = 2·, f = +1, LN′ = 10·
    assert pre(X, double, plus_one, times_ten).tolist() == [4.0, 10.0]
    assert post(X, double, plus_one, times_ten).tolist() == [6.0, 14.0]
    assert both(X, double, plus_one, times_ten).tolist() == [31.0, 73.0]
    assert after(X, double, plus_one, times_ten).tolist() == [5.0, 11.0]


@pytest.mark.parametrize("name", ["after", "pre", "both"])
def test_a_zero_branch_is_the_identity(name):
    assert torch.equal(PLACES[name](X, double, torch.zeros_like, times_ten), X)


@pytest.mark.parametrize("place", PLACES)
def test_only_both_has_a_norm_behind_the_branch(place):
    shape = ResidualShape(4, "rms", 1e-5, place)
    assert next(iter(shape.new_norm().parameters())).shape == (4,)
    assert bool([*shape.new_post_norm().parameters()]) == (place == "both")
