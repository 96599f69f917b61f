import pytest
import torch

from unspool.nn.norms import NORMS, LayerNorm, RMSNorm, add_branch


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


@pytest.mark.parametrize(
    ("place", "want"),
    [("pre", [4.0, 10.0]), ("post", [6.0, 14.0]), ("both", [31.0, 73.0]), ("after", [5.0, 11.0])],
)
def test_add_branch_by_hand(place, want):
    # x = (1, 3), LN = 2·, f = +1, LN′ = 10·
    assert add_branch(place, X, double, plus_one, times_ten).tolist() == want


@pytest.mark.parametrize("place", ["after", "pre", "both"])
def test_a_zero_branch_is_the_identity(place):
    assert torch.equal(add_branch(place, X, double, torch.zeros_like, times_ten), X)
