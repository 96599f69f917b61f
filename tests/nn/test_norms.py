import pytest
import torch

from unspool.nn.norms import (
    NORMS,
    RESIDUALS,
    LayerNorm,
    ResidualConfig,
    RMSNorm,
    branch_norm,
    post_norm,
    pre_norm,
    sandwich_norm,
)


def test_layer_norm_by_hand():
    assert LayerNorm(3, 0.0)(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx(
        [-1.2247449, 0.0, 1.2247449]
    )


def test_rms_norm_by_hand():
    assert RMSNorm(2, 0.0)(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([0.8485281, 1.1313709])


def test_layer_norm_has_mean_0_and_variance_1():
    y = LayerNorm(64, 1e-8)(5 + 3 * torch.randn(10, 64, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(y.mean(-1), torch.zeros(10), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(-1, unbiased=False), torch.ones(10), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NORMS)
def test_batch_mates_change_nothing(name):
    norm = NORMS[name](8, 1e-5)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(norm(x)[1], norm(x[1]))


def double(x):
    return 2 * x


def plus_one(x):
    return x + 1


def times_ten(x):
    return 10 * x


X = torch.tensor([1.0, 3.0])


def test_each_place_by_hand():
    # x = (1, 3), LN = 2·, f = +1, LN′ = 10·
    assert pre_norm(X, double, plus_one, times_ten).tolist() == [4.0, 10.0]
    assert post_norm(X, double, plus_one, times_ten).tolist() == [6.0, 14.0]
    assert sandwich_norm(X, double, plus_one, times_ten).tolist() == [31.0, 73.0]
    assert branch_norm(X, double, plus_one, times_ten).tolist() == [5.0, 11.0]


@pytest.mark.parametrize("name", ["after", "pre", "both"])
def test_a_zero_branch_is_the_identity(name):
    assert torch.equal(RESIDUALS[name](X, double, torch.zeros_like, times_ten), X)


@pytest.mark.parametrize("place", RESIDUALS)
def test_only_both_has_a_norm_behind_the_branch(place):
    shape = ResidualConfig(4, "rms", 1e-5, place)
    assert next(iter(shape.new_norm().parameters())).shape == (4,)
    assert bool([*shape.new_post_norm().parameters()]) == (place == "both")
