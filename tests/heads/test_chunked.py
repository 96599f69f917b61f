import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from unspool.heads import chunked_loss
from unspool.heads.chunked_loss import chunks, counted, linear_loss


def plain_loss(logp_MV, targets_M, weights_M, smoothing):
    """The definition, with all log-probabilities at once."""
    nll_M = -logp_MV.gather(1, targets_M[:, None])[:, 0]
    smoothed_M = (1 - smoothing) * nll_M - smoothing * logp_MV.mean(-1)
    return (weights_M * smoothed_M).sum(), (weights_M * nll_M).sum()


def problem(rows, width, vocab, *, bias=True, dtype=torch.float64, seed=0):
    dice = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=dtype, generator=dice).requires_grad_()  # noqa: E731
    hidden, weight, b = draw(rows, width), draw(vocab, width), draw(vocab) if bias else None
    targets = torch.randint(vocab, (rows,), generator=dice)
    weights = torch.rand(rows, dtype=dtype, generator=dice)
    return hidden, weight, b, targets, weights


@pytest.fixture
def small_chunks(monkeypatch):
    """Three rows at a time."""
    monkeypatch.setattr(chunked_loss, "SCORES", 1)
    monkeypatch.setattr(chunked_loss, "FEWEST_ROWS", 3)


def test_by_hand():
    hidden, weight = torch.ones(2, 1), torch.tensor([[0.0], [math.log(2)], [math.log(5)]])
    targets, weights = torch.tensor([0, 2]), torch.tensor([1.0, 2.0])
    loss, nll = linear_loss(hidden, weight, None, targets, weights)
    expected = math.log(8) + 2 * math.log(8 / 5)
    assert loss.item() == pytest.approx(expected)
    assert nll.item() == pytest.approx(expected)
    mean = math.log(8) - math.log(10) / 3
    loss, nll = linear_loss(hidden, weight, None, targets, weights, smoothing=0.1)
    assert loss.item() == pytest.approx(0.9 * expected + 0.1 * 3 * mean)
    assert nll.item() == pytest.approx(expected)


@pytest.mark.usefixtures("small_chunks")
@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(1, 8),
    vocab=st.integers(1, 6),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_value_and_gradients_are_those_of_the_definition(rows, vocab, smoothing, bias, seed):
    hidden, weight, b, targets, weights = problem(rows, 4, vocab, bias=bias, seed=seed)
    inputs = [hidden, weight] + ([b] if bias else [])
    ours = linear_loss(hidden, weight, b, targets, weights, smoothing)
    plain = plain_loss(F.log_softmax(F.linear(hidden, weight, b), -1), targets, weights, smoothing)
    torch.testing.assert_close(ours[0], plain[0])
    torch.testing.assert_close(ours[1], plain[1])
    for mine, theirs in zip(
        torch.autograd.grad(3 * ours[0], inputs), torch.autograd.grad(3 * plain[0], inputs), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_numerical_gradients(smoothing):
    hidden, weight, b, targets, weights = problem(7, 3, 5)
    call = lambda *inputs: linear_loss(*inputs, targets, weights, smoothing)[0]  # noqa: E731
    assert torch.autograd.gradcheck(call, (hidden, weight, b))


def test_scores_beyond_the_range_of_exp():
    hidden = torch.tensor([[1000.0], [-1000.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    loss, _ = linear_loss(hidden, weight, None, torch.tensor([0, 0]), torch.ones(2))
    assert loss.item() == 2000.0
    loss.backward()
    assert hidden.grad.tolist() == [[0.0], [-2.0]]


@pytest.mark.usefixtures("small_chunks")
def test_targets_without_weight_count_for_nothing_wherever_they_stand():
    hidden, weight, b, targets, weights = problem(7, 3, 5)
    keep = torch.tensor([0, 2, 3, 6])
    masked = torch.zeros_like(weights).index_copy(0, keep, weights[keep])
    loss, nll = linear_loss(hidden, weight, b, targets, masked, 0.1)
    fewer = linear_loss(hidden[keep], weight, b, targets[keep], weights[keep], 0.1)
    torch.testing.assert_close((loss, nll), fewer)
    (grad,) = torch.autograd.grad(loss, hidden)
    assert grad.abs().sum(-1).nonzero()[:, 0].tolist() == keep.tolist()


def test_no_target_at_all_gives_zero():
    hidden, weight, b, targets, weights = problem(3, 2, 4)
    loss, nll = linear_loss(hidden, weight, b, targets, 0 * weights, 0.1)
    assert (loss.item(), nll.item()) == (0.0, 0.0)
    loss.backward()
    assert not weight.grad.any()


def test_no_gradient_is_computed_where_none_is_wanted(monkeypatch):
    hidden, weight, b, targets, weights = problem(3, 2, 4)
    seen = []
    real = chunked_loss._Sums.__init__

    def spy(self, *args):
        real(self, *args)
        seen.append([it is not None for it in (self.grad_hidden_MD, self.grad_weight_VD, self.grad_bias_V)])

    monkeypatch.setattr(chunked_loss._Sums, "__init__", spy)
    with torch.no_grad():
        loss, _ = linear_loss(hidden, weight, b, targets, weights)
    assert not loss.requires_grad
    loss, nll = linear_loss(hidden, weight.detach(), b, targets, weights)
    assert loss.requires_grad
    assert not nll.requires_grad
    assert seen == [[False, False, False], [True, False, True]]


def test_autocast_takes_products_in_low_precision_and_keeps_the_dtypes_of_gradients():
    hidden, weight, b, targets, weights = problem(40, 16, 30, dtype=torch.float32)
    exact, _ = linear_loss(hidden, weight, b, targets, weights, 0.1)
    wanted = torch.autograd.grad(exact, [hidden, weight, b])
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = linear_loss(hidden, weight, b, targets, weights, 0.1)
    assert loss.dtype == torch.float32
    assert loss.item() != exact.item()
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)
    for mine, theirs in zip(torch.autograd.grad(loss, [hidden, weight, b]), wanted, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, rtol=0.1, atol=0.05)


def test_chunks_cover_every_row_once():
    assert list(chunks(0, 10)) == []
    parts = list(chunks(1000, chunked_loss.SCORES // 200))
    assert [it.stop - it.start for it in parts] == [200] * 5
    assert [it.start for it in parts] == [0, 200, 400, 600, 800]
    assert next(chunks(1000, chunked_loss.SCORES)).stop == chunked_loss.FEWEST_ROWS


def test_wrong_shapes_and_smoothings_are_named():
    hidden, _, _, targets, weights = problem(3, 2, 4)
    with pytest.raises(ValueError, match="flatten rows and times"):
        counted(hidden[None], targets, weights, 0.0)
    with pytest.raises(ValueError, match="flatten rows and times"):
        counted(hidden, targets[:2], weights, 0.0)
    with pytest.raises(ValueError, match=r"smoothing=1\.0"):
        counted(hidden, targets, weights, 1.0)
