import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from unspool.config import choose, to_kind_dict
from unspool.heads import HEADS, SoftmaxHeadConfig, chunked_loss, resolve_head

WIDTH, WORDS = 6, 9
SETTINGS = {kind: {} for kind in HEADS} | {"kerbs": {"senses": 1.7}, "tempered": {"learnt": True}}


def build(kind):
    torch.manual_seed(7)
    head = HEADS[kind](**SETTINGS[kind]).build(WIDTH, WORDS, nn.Embedding(WORDS, WIDTH))
    for parameter in head.parameters():
        with torch.no_grad():
            parameter += 0.3 * torch.randn_like(parameter)
    return head


def problem(rows=7):
    dice = torch.Generator().manual_seed(1)
    hidden = torch.randn(rows, WIDTH, dtype=torch.float64, generator=dice).requires_grad_()
    targets = torch.randint(WORDS, (rows,), generator=dice)
    return hidden, targets, torch.rand(rows, dtype=torch.float64, generator=dice)


@pytest.fixture
def small_chunks(monkeypatch):
    """Three rows at a time."""
    monkeypatch.setattr(chunked_loss, "MAX_SCORES", 1)
    monkeypatch.setattr(chunked_loss, "MIN_ROWS", 3)


@pytest.mark.parametrize("kind", HEADS)
@settings(deadline=None, max_examples=15)
@given(scale=st.floats(0, 200), seed=st.integers(0, 99))
def test_normalised_whatever_is_read(kind, scale, seed):
    head = build(kind)
    hidden = scale * torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logp = head(hidden)
    assert logp.shape == (2, 3, WORDS)
    assert not logp.isnan().any()
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(2, 3))


@pytest.mark.parametrize("kind", HEADS)
def test_a_single_vector_is_read_like_a_row_of_many(kind):
    head, hidden = build(kind), torch.randn(5, WIDTH)
    with torch.no_grad():
        torch.testing.assert_close(head(hidden)[3], head(hidden[3]))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", HEADS)
def test_the_loss_is_that_of_the_log_probabilities_in_value_and_gradients(kind, smoothing):
    head = build(kind).double()
    hidden, targets, weights = problem()
    logp_MV = head(hidden)
    nll_M = -logp_MV[range(7), targets]
    plain = weights @ ((1 - smoothing) * nll_M - smoothing * logp_MV.mean(-1))
    loss, nll = head.loss(hidden, targets, weights, smoothing)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(nll, weights @ nll_M.detach())
    inputs = [hidden, *(it for it in head.parameters() if it.requires_grad)]
    torch.testing.assert_close(torch.autograd.grad(loss, inputs), torch.autograd.grad(plain, inputs))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", HEADS)
def test_numerical_gradients(kind):
    head = build(kind).double()
    hidden, targets, weights = problem(rows=4)
    names, values = zip(*((n, p) for n, p in head.named_parameters() if p.requires_grad), strict=True)

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self, hidden):
            return self.head.loss(hidden, targets, weights, 0.1)[0]

    names = [f"head.{name}" for name in names]

    def call(hidden, *values):
        return torch.func.functional_call(Loss(), dict(zip(names, values, strict=True)), (hidden,))

    assert torch.autograd.gradcheck(call, (hidden, *values))


@pytest.mark.parametrize("kind", HEADS)
def test_an_output_matrix_is_offered_only_where_the_head_is_a_softmax_of_it(kind):
    head, hidden = build(kind), torch.randn(4, WIDTH)
    if kind in ("mixture", "sigsoftmax", "kerbs", "capped"):
        assert head.weight is None
    else:
        torch.testing.assert_close(head(hidden), (hidden @ head.weight.T).log_softmax(-1))


@pytest.mark.parametrize("kind", HEADS)
def test_settings_survive_being_written_down(kind):
    config = HEADS[kind](**SETTINGS[kind])
    assert choose(HEADS, to_kind_dict(HEADS, config), "head") == config


@pytest.mark.parametrize("kind", [kind for kind in HEADS if "tied" in HEADS[kind].__dataclass_fields__])
def test_a_tied_head_reads_the_embedding_and_does_not_own_it(kind):
    embed = nn.Embedding(WORDS, WIDTH)
    head = HEADS[kind](tied=True).build(WIDTH, WORDS, embed)
    assert all(it is not embed.weight for it in head.parameters())
    head.loss(torch.randn(3, WIDTH), torch.tensor([1, 2, 3]), torch.ones(3))[0].backward()
    assert embed.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_is_tied_as_the_model_is_unless_it_says(tied):
    assert resolve_head(None, tied) == SoftmaxHeadConfig(tied=tied)
    for kind, head in HEADS.items():
        if kind == "kerbs":
            assert resolve_head(head(), tied) == head()
        else:
            assert resolve_head(head(bias=True), tied) == head(bias=True, tied=tied)
            assert resolve_head(head(tied=not tied), tied) == head(tied=not tied)
    wide = HEADS["bilinear"](inner_width=5)
    assert resolve_head(wide, tied).tied is False


@pytest.mark.parametrize("kind", HEADS)
def test_an_optimizer_that_tells_nobody_leaves_no_old_answer_behind(kind):
    """torch's fused optimizers change weights without counting a version."""
    head, hidden = build(kind), torch.randn(3, WIDTH)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.5, fused=True)
    with torch.no_grad():
        before = head(hidden)
    head.loss(hidden, torch.tensor([1, 2, 3]), torch.ones(3))[0].backward()
    optimizer.step()
    with torch.no_grad():
        after = head(hidden)
    torch.testing.assert_close(after, head(hidden).detach())
    assert (after - before).abs().max() > 0.1


@pytest.mark.parametrize("kind", HEADS)
def test_a_gradient_of_the_gradient_is_refused(kind):
    head, hidden = build(kind), torch.randn(3, WIDTH, requires_grad=True)
    loss, _ = head.loss(hidden.sin(), torch.tensor([1, 2, 3]), torch.ones(3))
    with pytest.raises(RuntimeError, match="does not support create_graph"):
        torch.autograd.grad(loss, hidden, create_graph=True)


WIDTH_AUTOCAST, WORDS_AUTOCAST = 16, 40


@pytest.mark.parametrize("tied", [False, True], ids=["own", "tied"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", HEADS)
def test_the_answer_is_that_of_single_precision_to_the_digits_there_are(kind, dtype, rows, tied):
    torch.manual_seed(0)
    tied_or_not = {"tied": True} if tied and "tied" in HEADS[kind].__dataclass_fields__ else {}
    head = HEADS[kind](**tied_or_not).build(
        WIDTH_AUTOCAST, WORDS_AUTOCAST, nn.Embedding(WORDS_AUTOCAST, WIDTH_AUTOCAST)
    )
    hidden = torch.randn(rows, WIDTH_AUTOCAST).to(dtype)
    with torch.no_grad():
        want = head(hidden.float())
        with torch.autocast("cpu", torch.bfloat16):
            logp = head(hidden)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(rows))
    # bfloat16 has 8 bits, and an unlikely word's score is several times their spread.
    assert (logp - want).abs().max() < 0.03 * want.std()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", HEADS)
def test_the_loss_is_the_sum_of_its_targets_to_single_precision(kind, smoothing):
    torch.manual_seed(0)
    head = HEADS[kind]().build(WIDTH_AUTOCAST, WORDS_AUTOCAST, nn.Embedding(WORDS_AUTOCAST, WIDTH_AUTOCAST))
    hidden, targets, weights = (
        torch.randn(500, WIDTH_AUTOCAST),
        torch.randint(WORDS_AUTOCAST, (500,)),
        torch.rand(500),
    )
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        loss, nll = head.loss(hidden, targets, weights, smoothing)
        logp = head(hidden)
    assert nll.dtype == loss.dtype == torch.float32
    want = -(weights.double() * logp.double()[torch.arange(500), targets]).sum().item()
    even = -(weights.double() * logp.double().mean(-1)).sum().item()
    # A sum of 2,000 nats in bfloat16 would be off by up to 4.
    assert nll.item() == pytest.approx(want, rel=3e-4)
    assert loss.item() == pytest.approx((1 - smoothing) * want + smoothing * even, rel=3e-4)
