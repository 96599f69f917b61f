import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.heads.kerbs_kernel import (
    MAX_THETA,
    SenseTable,
    exp_remainder,
    kappa_and_slope,
    kernel,
    kernel_profile,
)

THETAS = st.one_of(
    st.floats(-20, 20, width=32),
    st.floats(-2, 2, width=32),
    st.builds(lambda sign, power: sign * 10.0**-power, st.sampled_from([-1, 1]), st.floats(0, 30)),
    st.just(0.0),
)
COSINES = st.floats(-1, 1, width=32, allow_subnormal=False)


def printed(cos, theta):
    """The kernel as the paper prints it."""
    a = -theta / (2 * (math.exp(-theta) + theta - 1))
    return a * math.exp(-theta * cos) - a


def evaluate(cos, theta, dtype):
    """Value, ∂/∂cos and ∂/∂θ."""
    cos, theta = (torch.tensor(it, dtype=dtype, requires_grad=True) for it in (cos, theta))
    value = kernel_profile(cos, theta)
    value.backward()
    return value.item(), cos.grad.item(), theta.grad.item()


@pytest.mark.parametrize(("theta", "expected"), [(1.0, 0.859), (-1.0, 1.196), (0.0, 1.0)])
def test_by_hand(theta, expected):
    assert evaluate(1.0, theta, torch.float32)[0] == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("theta", [-20.0, -3.0, -1.0, -0.1, 0.1, 0.7, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("cos", [-1.0, -0.3, 0.0, 0.01, 0.9])
def test_is_what_the_paper_prints_where_that_has_digits(cos, theta):
    assert evaluate(cos, theta, torch.float64)[0] == pytest.approx(printed(cos, theta), rel=1e-10)


def test_five_digits_on_a_grid_of_angles_and_widths():
    """1e-5 of each number in double precision: value, ∂/∂cos and ∂/∂θ, which crosses 0, everywhere."""
    powers = torch.logspace(-30, math.log10(20), 200)
    thetas = torch.cat([torch.linspace(-20, 20, 401), powers, -powers, torch.zeros(1)])[:, None]
    near = torch.logspace(-8, 0, 60)
    cosines = torch.cat([torch.linspace(-1, 1, 201), near, -near])[None]
    low, high = (
        _all_three(cosines.to(dtype), thetas.to(dtype), torch.float64)
        for dtype in (torch.float32, torch.float64)
    )
    for mine, exact in zip(low, high, strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-5, atol=1e-30)


def exact(cos, theta):
    """Value, ∂/∂cos and ∂/∂θ as the paper prints the kernel, with a hundred digits."""
    with mpmath.workdps(100):
        cos, theta = mpmath.mpf(cos), mpmath.mpf(theta)
        below = 2 * (mpmath.exp(-theta) + theta - 1)
        a, by_theta = -theta / below, -1 / below - 2 * theta * (mpmath.exp(-theta) - 1) / below**2
        bent = mpmath.exp(-theta * cos)
        return tuple(map(float, (a * bent - a, -a * theta * bent, by_theta * (bent - 1) - a * cos * bent)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "theta", [1e-12, -9e-11, -9e-9, 1e-6, -1e-4, 3e-4, 1e-3, 0.3, -0.99, 1.01, 7.0, -20.0, 20.0]
)
def test_five_digits_of_the_numbers_of_a_hundred_digits(theta, dtype):
    theta = torch.tensor(theta, dtype=dtype).item()
    for cos in (-1.0, -0.3, -1e-4, 1e-3, 0.25, 0.6667, 0.875, 1.0):
        cos = torch.tensor(cos, dtype=dtype).item()
        assert evaluate(cos, theta, dtype) == pytest.approx(exact(cos, theta), rel=1e-5, abs=1e-30)


def _all_three(cos, theta, dtype):
    cos, theta = (it.expand(len(theta), cos.shape[1]).clone().requires_grad_() for it in (cos, theta))
    value = kernel_profile(cos, theta)
    return [it.detach().to(dtype) for it in (value, *torch.autograd.grad(value.sum(), [cos, theta]))]


@settings(deadline=None, max_examples=150)
@given(cos=COSINES, theta=THETAS)
def test_single_precision_keeps_five_digits_in_value_and_gradients(cos, theta):
    theta = torch.tensor(theta, dtype=torch.float32).item()
    low, high = (evaluate(cos, theta, dtype) for dtype in (torch.float32, torch.float64))
    assert all(map(math.isfinite, low))
    assert low == pytest.approx(high, rel=1e-5, abs=1e-30)


@settings(deadline=None, max_examples=200)
@given(
    cos=st.floats(-1, 1, width=32),
    theta=st.one_of(THETAS, st.floats(width=32, allow_nan=False, allow_infinity=False)),
    low=st.booleans(),
)
def test_never_nan_whatever_theta_is(cos, theta, low):
    assert all(map(math.isfinite, evaluate(cos, theta, torch.float32 if low else torch.float64)))


NODES, SHARES = (torch.from_numpy(it) for it in np.polynomial.legendre.leggauss(60))


@settings(deadline=None, max_examples=200)
@given(theta=THETAS)
def test_every_theta_has_mean_one_half_between_right_angle_and_none(theta):
    """∫₀¹ K/(|h|·|w|) d cos, by Gauss's quadrature, which is exact here to rounding."""
    values = kernel_profile((NODES + 1) / 2, torch.tensor(theta, dtype=torch.float64))
    assert (SHARES / 2 @ values).item() == pytest.approx(0.5, abs=1e-9)
    values = kernel_profile(((NODES + 1) / 2).float(), torch.tensor(theta, dtype=torch.float32))
    assert (SHARES / 2 @ values.double()).item() == pytest.approx(0.5, abs=5e-6)


@settings(deadline=None, max_examples=100)
@given(theta=st.floats(-(2.0**-21), 2.0**-21, width=32), seed=st.integers(0, 99))
def test_theta_near_zero_is_the_inner_product(theta, seed):
    dice = torch.Generator().manual_seed(seed)
    hidden, senses = torch.randn(3, 4, generator=dice), torch.randn(5, 4, generator=dice)
    lengths = hidden.norm(dim=-1, keepdim=True) * senses.norm(dim=-1)
    ours = kernel(hidden, senses, torch.full((5,), theta))
    assert ((ours - hidden @ senses.T) / lengths).abs().max() < 1e-6


def test_the_gradient_by_theta_changes_sign_at_two_thirds():
    """∂K/∂θ at 0 is cos/3 − cos²/2."""
    for cos in (-1.0, -0.5, 0.2, 2 / 3, 0.9):
        assert evaluate(cos, 0.0, torch.float64)[2] == pytest.approx(cos / 3 - cos**2 / 2, abs=1e-7)


def test_numerical_gradients():
    cos = torch.tensor([-0.9, -0.2, 0.0, 0.4, 1.0], dtype=torch.float64, requires_grad=True)
    theta = torch.tensor([[-7.0], [-0.5], [-1e-3], [2e-4], [0.9], [1.1], [6.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(kernel_profile, (cos, theta.requires_grad_()), eps=1e-7)


def test_theta_zero_is_the_inner_product_in_value_and_gradients():
    hidden = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    senses = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    ours, plain = kernel(hidden, senses, torch.zeros(5, dtype=torch.float64)), hidden @ senses.T
    torch.testing.assert_close(ours, plain)
    outer = torch.randn_like(plain)
    torch.testing.assert_close(
        torch.autograd.grad(ours, [hidden, senses], outer),
        torch.autograd.grad(plain, [hidden, senses], outer),
    )


def test_a_vector_of_zeros_scores_zero_and_has_finite_gradients():
    hidden, senses = torch.zeros(1, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    scores = kernel(hidden, senses, torch.tensor([0.0, 3.0]))
    assert not scores.any()
    scores.sum().backward()
    assert hidden.grad.isfinite().all()
    assert senses.grad.isfinite().all()


@pytest.mark.parametrize("size", [1e-18, 1e20, 1e30])
def test_long_and_short_vectors_keep_their_length(size):
    hidden, senses = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    theta = torch.tensor([2.0, 0.0])
    for factor_h, factor_w in ((size, 1.0), (1.0, size)):
        given = (factor_h * hidden).requires_grad_(), (factor_w * senses).requires_grad_()
        scores = kernel(*given, theta)
        torch.testing.assert_close(scores.detach() / size, kernel(hidden, senses, theta), rtol=1e-5, atol=0)
        assert all(it.isfinite().all() for it in torch.autograd.grad(scores.sum(), given))


def test_beyond_the_largest_theta_nothing_changes_any_more():
    value, by_cos, by_theta = evaluate(-1.0, 1e6, torch.float32)
    assert value == evaluate(-1.0, MAX_THETA, torch.float32)[0]
    assert math.isfinite(by_cos)
    assert by_theta == 0.0


def test_bend_agrees_on_both_sides_of_its_seam():
    x = torch.tensor([-0.3001, -0.2999, 0.2999, 0.3001], dtype=torch.float64)
    torch.testing.assert_close(exp_remainder(x, x.expm1()), x * x.exp() - x.expm1(), rtol=1e-9, atol=0)


def test_scale_agrees_on_both_sides_of_its_seam():
    for theta in (-1.0, 1.0):
        below, above = (
            kappa_and_slope(torch.tensor(theta * f, dtype=torch.float64)) for f in (1 - 1e-9, 1 + 1e-9)
        )
        torch.testing.assert_close(below, above, rtol=1e-8, atol=0)


def test_sense_table_by_hand():
    """Word 0 has senses 1 and 3, word 1 has 0, word 2 has 2."""
    table = SenseTable.from_words(torch.tensor([1, 0, 2, 0]), 3)
    assert table.senses_VJ.tolist() == [[1, 3], [0, 0], [2, 2]]
    assert table.is_sense_VJ.tolist() == [[True, True], [True, False], [True, False]]
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log()
    assert table.logsumexp_by_word(scores).exp()[0].tolist() == pytest.approx([0.6, 0.1, 0.3])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 99), st.floats(0.1, 300))
def test_sums_are_those_of_a_loop_over_words(extra, seed, spread):
    dice = torch.Generator().manual_seed(seed)
    words = torch.tensor([0, 1, 2, 3, 4, *extra])[torch.randperm(5 + len(extra), generator=dice)]
    scores = spread * torch.randn(2, 3, len(words), generator=dice, dtype=torch.float64)
    looped = torch.stack([scores[..., words == word].logsumexp(-1) for word in range(5)], -1)
    torch.testing.assert_close(SenseTable.from_words(words, 5).logsumexp_by_word(scores), looped)


def test_one_sense_each_is_left_alone_only_in_order():
    scores = torch.tensor([5.0, 6.0, 7.0])
    assert SenseTable.from_words(torch.tensor([0, 1, 2]), 3).logsumexp_by_word(scores) is scores
    assert SenseTable.from_words(torch.tensor([2, 0, 1]), 3).logsumexp_by_word(scores).tolist() == [
        6.0,
        7.0,
        5.0,
    ]


def test_put_in_order_the_senses_of_a_rank_lie_side_by_side():
    """Word 2 has three senses, word 0 two, word 1 one."""
    table = SenseTable.from_words(torch.tensor([2, 0, 1, 2, 0, 2]), 3)
    assert table.order_S.tolist() == [0, 1, 2, 3, 4, 5]
    assert table.ranks == (slice(0, 3), slice(3, 5), slice(5, 6))
    assert list(table.blocks()) == [
        (slice(0, 2), slice(2)),
        (slice(3, 5), slice(2)),
        (slice(5, 6), slice(1)),
    ]
    scores = torch.tensor([[1.0, 2.0, 3.0, 10.0, 20.0, 100.0]])
    assert table.sum_multi_sense(scores, torch.add).tolist() == [[111.0, 22.0]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 99))
def test_sums_of_senses_put_in_order_are_those_of_the_words_with_several(extra, seed):
    dice = torch.Generator().manual_seed(seed)
    words = torch.tensor([0, 1, 2, 3, 4, *extra])[torch.randperm(5 + len(extra), generator=dice)]
    table, scores = SenseTable.from_words(words, 5), torch.randn(3, len(words), generator=dice)
    assert torch.equal(table.order_S[table.position_S], torch.arange(len(words)))
    ordered = scores[:, table.order_S]
    counts = torch.bincount(words, minlength=5)
    n_multi_sense = [
        word for word in counts.argsort(descending=True, stable=True).tolist() if counts[word] > 1
    ]
    assert table.n_multi_sense == len(n_multi_sense)
    looped = [scores[:, words == word].logsumexp(-1) for word in n_multi_sense]
    torch.testing.assert_close(
        table.sum_multi_sense(ordered, torch.logaddexp), torch.stack(looped, -1) if looped else ordered[:, :0]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0, 2], "1 of 3 words have no sense, the first of them word 1"),
        ([0, 1, 2, 3], "belongs to word 3, but there are 3 words: name words from 0 to 2"),
    ],
)
def test_a_word_without_a_sense_or_an_unknown_word_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        SenseTable.from_words(torch.tensor(words), 3)
