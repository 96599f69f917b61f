import math

import pytest
import torch

from unspool.heads import chunked
from unspool.heads.kerbs_loss import kerbs_loss
from unspool.heads.kernel import kernel
from unspool.heads.senses import SenseTable


def problem(rows, words, theta, dtype=torch.float64):
    dice = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=dice, dtype=dtype).requires_grad_()  # noqa: E731
    theta = torch.tensor(theta, dtype=dtype).requires_grad_()
    table = SenseTable.of(torch.tensor(words), max(words) + 1)
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
    logp = table.by_word(kernel(hidden, senses, theta).log_softmax(-1))
    nll = -logp[range(len(targets)), targets]
    return weights @ ((1 - smoothing) * nll - smoothing * logp.mean(-1))


@pytest.fixture
def small_chunks(monkeypatch):
    """Three rows at a time."""
    monkeypatch.setattr(chunked, "SCORES", 1)
    monkeypatch.setattr(chunked, "FEWEST_ROWS", 3)


def test_by_hand():
    """θ = 0; scores log 1, log 2 and log 5; the second and third are senses of word 1."""
    hidden, senses = torch.ones(1, 1), torch.tensor([[0.0], [math.log(2)], [math.log(5)]])
    table = SenseTable.of(torch.tensor([0, 1, 1]), 2)
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


@pytest.mark.usefixtures("small_chunks")
def test_numerical_gradients():
    hidden, senses, theta, table, targets, weights = problem(4, [0, 1, 2, 1], [0.3, -0.5, 2.0, 0.02])
    call = lambda *inputs: kerbs_loss(*inputs, table, targets, weights, 0.1)[0]  # noqa: E731
    assert torch.autograd.gradcheck(call, (hidden, senses, theta))


def test_single_precision_has_the_gradients_of_double_precision():
    thetas = [0.0, 1e-6, -0.05, 0.2, -3.0, 15.0]
    grads = []
    for dtype in (torch.float32, torch.float64):
        hidden, senses, theta, table, targets, weights = problem(8, [1, 0, 2, 0, 3, 0], thetas, torch.float32)
        inputs = [it.detach().to(dtype).requires_grad_() for it in (hidden, senses, theta)]
        loss = kerbs_loss(*inputs, table, targets, weights)[0]
        grads.append([it.double() for it in torch.autograd.grad(loss, inputs)])
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)


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
