import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.heads import chunked_loss
from unspool.heads.kerbs_kernel import SenseTable, kernel
from unspool.heads.kerbs_loss import kerbs_loss


def problem(rows, words, theta, dtype=torch.float64):
    dice = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=dice, dtype=dtype).requires_grad_()  # noqa: E731
    theta = torch.tensor(theta, dtype=dtype).requires_grad_()
    table = SenseTable.from_words(torch.tensor(words), max(words) + 1)
    targets = torch.arange(rows) % (max(words) + 1)
    return (
        draw(rows, 4),
        draw(len(words), 4),
        theta,
        table,
        targets,
        torch.rand(rows, generator=dice, dtype=dtype),
    )


def plain_loss(hidden, senses, theta, table, targets, weights, smoothing):
    logp = table.logsumexp_by_word(kernel(hidden, senses, theta).log_softmax(-1))
    nll = -logp[range(len(targets)), targets]
    return weights @ ((1 - smoothing) * nll - smoothing * logp.mean(-1))


@pytest.fixture
def small_chunks(monkeypatch):
    """Three rows at a time, and of these at most two."""
    monkeypatch.setattr(chunked_loss, "MAX_SCORES", 1)
    monkeypatch.setattr(chunked_loss, "MIN_ROWS", 3)
    monkeypatch.setattr("unspool.heads.kerbs_loss.STRIP_SCORES", 12)


def test_by_hand():
    """θ = 0; scores log 1, log 2 and log 5; the second and third are senses of word 1."""
    hidden, senses = torch.ones(1, 1), torch.tensor([[0.0], [math.log(2)], [math.log(5)]])
    table = SenseTable.from_words(torch.tensor([0, 1, 1]), 2)
    loss, nll, (targets, logp, usage) = kerbs_loss(
        hidden, senses, torch.zeros(3), table, torch.tensor([1]), torch.tensor([2.0])
    )
    assert loss.item() == nll.item() == pytest.approx(2 * math.log(8 / 7))
    assert targets.tolist() == [1]
    assert logp.exp().tolist() == pytest.approx([7 / 8])
    assert usage[0].tolist() == pytest.approx([2 / 8, 5 / 8])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize(
    "theta",
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 1e-5, -0.05, 0.2, -3.0, 15.0],
        [4.0, 1.0, -1.0, 0.2, -3.0, 15.0],
        [0.09, 0.11, -0.09, -0.11, 1e-9, -1e-9],
    ],
)
def test_value_and_gradients_are_those_of_the_definition(theta, smoothing):
    hidden, senses, theta, table, targets, weights = problem(8, [1, 0, 2, 0, 3, 0], theta)
    inputs = [hidden, senses, theta]
    ours = kerbs_loss(*inputs, table, targets, weights, smoothing)[0]
    plain = plain_loss(*inputs, table, targets, weights, smoothing)
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(
        torch.autograd.grad(2 * ours, inputs), torch.autograd.grad(2 * plain, inputs), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("reach", [1.0, 300.0])
def test_smoothing_is_exact_whether_or_not_improbable_words_have_digits(reach):
    """exp of scores hundreds below the largest is 0 in single precision: shares are then taken another way."""
    hidden, senses, theta, table, targets, weights = problem(8, [1, 0, 2, 0, 3, 0], [0.1, 0, 0.5, 0, 0, 0])
    given = [(reach * hidden).detach(), senses.detach(), theta.detach()]
    low, high = [it.float().requires_grad_() for it in given], [it.clone().requires_grad_() for it in given]
    ours = kerbs_loss(*low, table, targets, weights.float(), 0.3)[0]
    plain = plain_loss(*high, table, targets, weights, 0.3)
    assert ours.item() == pytest.approx(plain.item(), rel=1e-5)
    for mine, exact in zip(torch.autograd.grad(ours, low), torch.autograd.grad(plain, high), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-4, atol=1e-5 * exact.abs().max().item())


@pytest.mark.usefixtures("small_chunks")
def test_numerical_gradients():
    hidden, senses, theta, table, targets, weights = problem(4, [0, 1, 2, 1], [0.3, -0.5, 2.0, 0.02])
    call = lambda *inputs: kerbs_loss(*inputs, table, targets, weights, 0.1)[0]  # noqa: E731
    assert torch.autograd.gradcheck(call, (hidden, senses, theta))


THETAS = st.one_of(
    st.floats(-20, 20, width=32),
    st.floats(-1, 1, width=32),
    st.builds(lambda sign, power: sign * 10.0**-power, st.sampled_from([-1, 1]), st.floats(0, 30)),
    st.sampled_from([0.0, -20.0, 20.0, 0.499, 0.501, -0.499, -0.501]),
)
SENSES = torch.tensor([1, 0, 2, 0, 3, 0])


def measured(given, dtype, targets, weights, smoothing, rows=slice(None)):
    """The loss and its gradients by hidden vectors, senses and θ, in double precision at the end."""
    hidden, senses, theta = (it.to(dtype).requires_grad_() for it in given)
    loss, *_ = kerbs_loss(
        *(hidden[rows], senses, theta, SenseTable.from_words(SENSES, 4)),
        *(targets[rows], weights[rows].to(dtype), smoothing),
    )
    return [it.detach().double() for it in (loss, *torch.autograd.grad(loss, [hidden, senses, theta]))]


def directed(seed, reach):
    """Hidden vectors and senses at every angle from 0 to 180 degrees."""
    dice = torch.Generator().manual_seed(seed)
    senses = torch.nn.functional.normalize(torch.randn(6, 4, generator=dice), dim=-1)
    hidden = torch.nn.functional.normalize(torch.randn(12, 4, generator=dice), dim=-1)
    hidden[0], hidden[1], hidden[2] = senses[0], -senses[0], senses[1]
    return reach * hidden, senses, torch.arange(12) % 4, 0.5 + torch.rand(12, generator=dice)


@settings(deadline=None, max_examples=60)
@given(
    theta=st.lists(THETAS, min_size=6, max_size=6),
    reach=st.floats(0.125, 4.0, width=32),
    smoothing=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 10_000),
)
def test_single_precision_keeps_five_digits_in_value_and_gradients(theta, reach, smoothing, seed):
    """1e-5 of the length of what is summed: rows may cancel out, and then nobody keeps digits of the sum."""
    hidden, senses, *rest = directed(seed, reach)
    given = hidden, senses, torch.tensor(theta, dtype=torch.float32)
    low, high = (measured(given, dtype, *rest, smoothing) for dtype in (torch.float32, torch.float64))
    rows = [measured(given, torch.float64, *rest, smoothing, [row]) for row in range(12)]
    for mine, exact, parts in zip(low, high, zip(*rows, strict=True), strict=True):
        assert mine.isfinite().all()
        length = torch.stack([part.norm() for part in parts]).norm()
        assert (mine - exact).norm() <= 1e-5 * length


@settings(deadline=None, max_examples=100)
@given(
    theta=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=6, max_size=6),
    reach=st.sampled_from([0.0, 1e-30, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_never_nan_whatever_theta_is(theta, reach, seed):
    hidden, senses, *rest = directed(seed, reach)
    found = measured((hidden, senses, torch.tensor(theta)), torch.float32, *rest, 0.1)
    assert not any(it.isnan().any() for it in found)


def test_without_gradients_none_is_computed_and_frozen_parts_get_none():
    hidden, senses, theta, table, targets, weights = problem(4, [0, 1], [0.0, 1.0])
    with torch.no_grad():
        assert not kerbs_loss(hidden, senses, theta, table, targets, weights)[0].requires_grad
    kerbs_loss(hidden, senses.detach(), theta, table, targets, weights)[0].backward()
    assert senses.grad is None
    assert theta.grad.abs().sum() > 0


def test_targets_without_weight_are_left_out():
    hidden, senses, theta, table, targets, weights = problem(4, [0, 1], [0.0, 1.0])
    weights = weights * torch.tensor([1, 0, 0, 1])
    _, _, (kept, logp, usage) = kerbs_loss(hidden, senses, theta, table, targets, weights)
    assert kept.tolist() == targets[[0, 3]].tolist()
    assert len(logp) == len(usage) == 2
