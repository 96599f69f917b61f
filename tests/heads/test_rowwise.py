import pytest
import torch
import torch.nn.functional as F

from unspool.heads import chunked_loss
from unspool.heads.chunked_loss import linear_loss, rowwise_loss


def linear_logp(hidden, weight, bias):
    return F.log_softmax(F.linear(hidden, weight, bias), -1)


@pytest.fixture
def problem(monkeypatch):
    """Seven targets, three rows at a time."""
    monkeypatch.setattr(chunked_loss, "SCORES", 1)
    monkeypatch.setattr(chunked_loss, "FEWEST_ROWS", 3)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64).requires_grad_()  # noqa: E731
    hidden, weight, bias = draw(7, 4), draw(5, 4), draw(5)
    return hidden, weight, bias, torch.randint(5, (7,)), torch.rand(7, dtype=torch.float64)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_value_and_gradients_of_a_linear_head_are_those_of_its_own_loss(problem, smoothing):
    hidden, weight, bias, targets, weights = problem
    mine = rowwise_loss(linear_logp, hidden, (weight, bias), targets, weights, smoothing, 5)
    theirs = linear_loss(hidden, weight, bias, targets, weights, smoothing)
    torch.testing.assert_close(mine, theirs)
    inputs = [hidden, weight, bias]
    torch.testing.assert_close(
        torch.autograd.grad(2 * mine[0], inputs), torch.autograd.grad(2 * theirs[0], inputs)
    )


def test_numerical_gradients(problem):
    hidden, weight, bias, targets, weights = problem
    call = lambda h, w, b: rowwise_loss(linear_logp, h, (w, b), targets, weights, 0.1, 5)[0]  # noqa: E731
    assert torch.autograd.gradcheck(call, (hidden, weight, bias))


def test_what_is_frozen_or_absent_gets_no_gradient(problem):
    hidden, weight, _, targets, weights = problem
    loss, nll = rowwise_loss(linear_logp, hidden.detach(), (weight, None), targets, weights, 0.0, 5)
    loss.backward()
    assert hidden.grad is None
    assert weight.grad.abs().sum() > 0
    assert not nll.requires_grad


def test_without_gradients_nothing_is_recorded(problem):
    hidden, weight, bias, targets, weights = problem
    recorded = []

    def spy(*inputs):
        logp = linear_logp(*inputs)
        recorded.append(logp.requires_grad)
        return logp

    with torch.no_grad():
        loss, _ = rowwise_loss(spy, hidden, (weight, bias), targets, weights, 0.0, 5)
    assert not loss.requires_grad
    assert recorded == [False] * 3


def test_targets_without_weight_are_not_computed(problem):
    hidden, weight, bias, targets, weights = problem
    rows = []
    spy = lambda h, *rest: rows.append(len(h)) or linear_logp(h, *rest)  # noqa: E731
    rowwise_loss(spy, hidden, (weight, bias), targets, weights * (torch.arange(7) > 4), 0.0, 5)
    assert rows == [2]


def test_autocast_does_not_round_the_sums(problem):
    _, weight, bias, _, _ = problem
    hidden = torch.randn(600, 4)
    targets, weights = torch.randint(5, (600,)), torch.rand(600)
    weight, bias = weight.detach().float().requires_grad_(), bias.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        loss, nll = rowwise_loss(linear_logp, hidden, (weight, bias), targets, weights, 0.2, 5)
        logp = linear_logp(hidden, weight, bias).double().detach()
    want = -(weights.double() * logp[torch.arange(600), targets]).sum()
    assert nll.item() == pytest.approx(want.item(), rel=1e-5)
    assert loss.item() == pytest.approx((0.8 * want - 0.2 * (weights * logp.mean(-1)).sum()).item(), rel=1e-5)
