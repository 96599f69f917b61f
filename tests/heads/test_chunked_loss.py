import gc
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch.profiler import ProfilerActivity, profile

from unspool.heads import HEADS, chunked_loss
from unspool.heads.chunked_loss import chunks, linear_loss, rowwise_loss, select_weighted


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
    monkeypatch.setattr(chunked_loss, "MAX_SCORES", 1)
    monkeypatch.setattr(chunked_loss, "MIN_ROWS", 3)


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
    real = chunked_loss._LinearLossSums.__init__

    def spy(self, *args):
        real(self, *args)
        seen.append([it is not None for it in (self.grad_hidden_MD, self.grad_weight_VD, self.grad_bias_V)])

    monkeypatch.setattr(chunked_loss._LinearLossSums, "__init__", spy)
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
    parts = list(chunks(1000, chunked_loss.MAX_SCORES // 200))
    assert [it.stop - it.start for it in parts] == [200] * 5
    assert [it.start for it in parts] == [0, 200, 400, 600, 800]
    assert next(chunks(1000, chunked_loss.MAX_SCORES)).stop == chunked_loss.MIN_ROWS


def test_wrong_shapes_and_smoothings_are_named():
    hidden, _, _, targets, weights = problem(3, 2, 4)
    with pytest.raises(ValueError, match="flatten rows and positions"):
        select_weighted(hidden[None], targets, weights, 0.0)
    with pytest.raises(ValueError, match="flatten rows and positions"):
        select_weighted(hidden, targets[:2], weights, 0.0)
    with pytest.raises(ValueError, match=r"smoothing=1\.0"):
        select_weighted(hidden, targets, weights, 1.0)


def linear_logp(hidden, weight, bias=None):
    return F.log_softmax(F.linear(hidden, weight, bias), -1)


@pytest.fixture
def problem_rowwise(monkeypatch):
    """Seven targets, three rows at a time."""
    monkeypatch.setattr(chunked_loss, "MAX_SCORES", 1)
    monkeypatch.setattr(chunked_loss, "MIN_ROWS", 3)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64).requires_grad_()  # noqa: E731
    hidden, weight, bias = draw(7, 4), draw(5, 4), draw(5)
    return hidden, weight, bias, torch.randint(5, (7,)), torch.rand(7, dtype=torch.float64)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_value_and_gradients_of_a_linear_head_are_those_of_its_own_loss(problem_rowwise, smoothing):
    hidden, weight, bias, targets, weights = problem_rowwise
    mine = rowwise_loss(linear_logp, hidden, (weight, bias), targets, weights, smoothing, 5)
    theirs = linear_loss(hidden, weight, bias, targets, weights, smoothing)
    torch.testing.assert_close(mine, theirs)
    inputs = [hidden, weight, bias]
    torch.testing.assert_close(
        torch.autograd.grad(2 * mine[0], inputs), torch.autograd.grad(2 * theirs[0], inputs)
    )


def test_rowwise_numerical_gradients(problem_rowwise):
    hidden, weight, bias, targets, weights = problem_rowwise
    call = lambda h, w, b: rowwise_loss(linear_logp, h, (w, b), targets, weights, 0.1, 5)[0]  # noqa: E731
    assert torch.autograd.gradcheck(call, (hidden, weight, bias))


def test_frozen_inputs_get_no_gradient(problem_rowwise):
    hidden, weight, _, targets, weights = problem_rowwise
    loss, nll = rowwise_loss(linear_logp, hidden.detach(), (weight,), targets, weights, 0.0, 5)
    loss.backward()
    assert hidden.grad is None
    assert weight.grad.abs().sum() > 0
    assert not nll.requires_grad


def test_without_gradients_nothing_is_recorded(problem_rowwise):
    hidden, weight, bias, targets, weights = problem_rowwise
    recorded = []

    def spy(*inputs):
        logp = linear_logp(*inputs)
        recorded.append(logp.requires_grad)
        return logp

    with torch.no_grad():
        loss, _ = rowwise_loss(spy, hidden, (weight, bias), targets, weights, 0.0, 5)
    assert not loss.requires_grad
    assert recorded == [False] * 3


def test_targets_without_weight_are_not_computed(problem_rowwise):
    hidden, weight, bias, targets, weights = problem_rowwise
    rows = []
    spy = lambda h, *rest: rows.append(len(h)) or linear_logp(h, *rest)  # noqa: E731
    rowwise_loss(spy, hidden, (weight, bias), targets, weights * (torch.arange(7) > 4), 0.0, 5)
    assert rows == [2]


def test_autocast_does_not_round_the_sums(problem_rowwise):
    _, weight, bias, _, _ = problem_rowwise
    hidden = torch.randn(600, 4)
    targets, weights = torch.randint(5, (600,)), torch.rand(600)
    weight, bias = weight.detach().float().requires_grad_(), bias.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        loss, nll = rowwise_loss(linear_logp, hidden, (weight, bias), targets, weights, 0.2, 5)
        logp = linear_logp(hidden, weight, bias).double().detach()
    want = -(weights.double() * logp[torch.arange(600), targets]).sum()
    assert nll.item() == pytest.approx(want.item(), rel=1e-5)
    assert loss.item() == pytest.approx((0.8 * want - 0.2 * (weights * logp.mean(-1)).sum()).item(), rel=1e-5)


WIDTH, WORDS, FEW, MANY = 4, 1024, 256, 1280
SETTINGS = {kind: {} for kind in HEADS} | {"mixture": {"experts": 2}, "kerbs": {"senses": 2.0}}


def peak_bytes(call):
    """The most that was allocated at any one time."""
    gc.collect()  # what others left behind must not be freed while this is measured
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        call()
    events = [it for it in found.profiler.kineto_results.events() if it.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda it: it.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def loss_bytes(kind, rows, smoothing):
    torch.manual_seed(0)
    head = HEADS[kind](**SETTINGS[kind]).build(WIDTH, WORDS)
    hidden, targets = torch.randn(rows, WIDTH, requires_grad=True), torch.randint(WORDS, (rows,))
    return peak_bytes(lambda: head.loss(hidden, targets, torch.ones(rows), smoothing)[0].backward())


def growth(kind, smoothing):
    """Bytes that more targets take, in parts of their scores."""
    more = loss_bytes(kind, MANY, smoothing) - loss_bytes(kind, FEW, smoothing)
    return more / ((MANY - FEW) * WORDS * 4)


def test_what_is_measured():
    assert peak_bytes(lambda: [torch.empty(100) for _ in range(7)]) == 7 * 400
    assert peak_bytes(lambda: [len(torch.empty(100)) for _ in range(7)]) < 3 * 400


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", HEADS)
def test_memory_does_not_grow_by_the_scores_of_more_targets(kind, smoothing, monkeypatch):
    monkeypatch.setattr(chunked_loss, "MAX_SCORES", 64 * WORDS)
    monkeypatch.setattr(chunked_loss, "MIN_ROWS", 16)
    assert growth(kind, smoothing) < 0.05


@pytest.mark.parametrize("kind", HEADS)
def test_with_all_rows_in_one_chunk_it_would(kind, monkeypatch):
    monkeypatch.setattr(chunked_loss, "MAX_SCORES", 1 << 40)
    assert growth(kind, 0.0) > 0.9
