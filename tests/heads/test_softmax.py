import math

import pytest
import torch
from torch import nn

from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import StoredEmbedding, quantise_int8
from unspool.heads.softmax import Softmax, SoftmaxHeadConfig, Tempered, TemperedHeadConfig, TiedSoftmax


def test_by_hand():
    head = Softmax(1, 3)
    head.weight.data = torch.tensor([[0.0], [math.log(2)], [math.log(5)]])
    assert head(torch.tensor([1.0])).exp().tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_a_bias_is_added():
    head = Softmax(1, 2, bias=True)
    head.weight.data.zero_()
    head.bias.data = torch.tensor([0.0, math.log(3)])
    assert head(torch.ones(1)).exp().tolist() == pytest.approx([0.25, 0.75])


def test_tied_equals_untied_with_the_same_rows_and_owns_nothing():
    embed = nn.Embedding(7, 4)
    head, tied = Softmax(4, 7), TiedSoftmax(embed)
    head.weight.data = embed.weight.data
    hidden = torch.randn(3, 4)
    torch.testing.assert_close(tied(hidden), head(hidden))
    assert list(tied.parameters()) == []
    assert tied.weight is embed.weight


@pytest.mark.parametrize("rows", [1, 5])
def test_always_normalised(rows):
    with torch.no_grad():
        logp = Softmax(6, 50)(100 * torch.randn(rows, 6))
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(rows))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_is_that_of_the_log_probabilities(tied, bias):
    embed = nn.Embedding(7, 4)
    head = SoftmaxHeadConfig(tied=tied, bias=bias).build(4, 7, embed)
    assert (head.weight is embed.weight) == tied
    if bias:
        nn.init.normal_(head.bias)
    hidden, targets, weights = torch.randn(5, 4), torch.tensor([0, 1, 6, 3, 3]), torch.rand(5)
    logp_MV = head(hidden)
    loss, nll = head.loss(hidden, targets, weights, smoothing=0.1)
    torch.testing.assert_close(nll, -(weights * logp_MV[range(5), targets]).sum())
    torch.testing.assert_close(loss, 0.9 * nll - 0.1 * (weights * logp_MV.mean(-1)).sum())
    loss.backward()
    assert head.weight.grad.abs().sum() > 0
    assert not bias or head.bias.grad.abs().sum() > 0


@pytest.mark.parametrize("embed", [None, nn.Embedding(7, 3)])
def test_a_tied_head_needs_a_fitting_embedding(embed):
    with pytest.raises(ValueError, match=r"\(7, 4\).*set tied=false"):
        SoftmaxHeadConfig(tied=True).build(4, 7, embed)


def test_tempered_by_hand():
    head = Tempered(Softmax(4, 2), width=4)
    head.inner.weight.data = torch.tensor([[0.0] * 4, [2 * math.log(3), 0.0, 0.0, 0.0]])
    assert head(torch.tensor([1.0, 5.0, 0.0, 0.0])).exp().tolist() == pytest.approx([0.25, 0.75])


def test_scores_have_variance_one_at_first():
    torch.manual_seed(0)
    head = TemperedHeadConfig().build(256, 400)
    scores = torch.randn(500, 256) @ head.weight.T
    assert scores.var().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("learnt", [False, True])
def test_beta_learns_only_when_asked(learnt):
    head = TemperedHeadConfig(learnt=learnt).build(4, 5)
    assert head.beta.item() == 0.5
    head.loss(torch.randn(3, 4), torch.tensor([1, 2, 3]), torch.ones(3))[0].backward()
    assert (head.beta.grad is not None) == learnt


def test_the_matrix_and_the_bias_say_it_all():
    head, hidden = TemperedHeadConfig(bias=True).build(4, 5), torch.randn(3, 4)
    torch.nn.init.normal_(head.bias)
    torch.testing.assert_close(head(hidden), (hidden @ head.weight.T + head.bias).log_softmax(-1))
    assert TemperedHeadConfig().build(4, 5).bias is None


@pytest.fixture(params=[False, True], ids=["plain", "bias"])
def heads(request):
    """Stored heads, and those with the same numbers in float32."""
    torch.manual_seed(0)
    weight = quantise_int8(torch.randn(11, 8))
    bias = torch.randn(11) if request.param else None
    embed = torch.nn.Embedding.from_pretrained(weight.restore())
    plain, tied = Softmax(8, 11, request.param), TiedSoftmax(embed, request.param)
    plain.weight = torch.nn.Parameter(weight.restore())
    if bias is not None:
        plain.bias, tied.bias = torch.nn.Parameter(bias), torch.nn.Parameter(bias)
    stored_embed = StoredEmbedding((weight,)).eval()
    return [
        (StoredSoftmax((weight,), bias).eval(), plain),
        (TiedStoredSoftmax(stored_embed, bias).eval(), tied),
    ]


def test_hand_computed():
    head = StoredSoftmax((quantise_int8(torch.tensor([[0.0, 0.0], [127.0, 0.0]])),)).eval()
    logp = head(torch.tensor([0.01, 5.0]))
    assert logp.tolist() == pytest.approx([-1.5175, -0.2475], abs=1e-4)


@torch.no_grad()
def test_the_same_numbers_in_float32_say_the_same(heads):
    hidden = torch.randn(3, 2, 8)
    for stored, plain in heads:
        torch.testing.assert_close(stored.logits(hidden), plain.logits(hidden))
        torch.testing.assert_close(stored(hidden), plain(hidden))
        assert torch.equal(stored.weight, plain.weight)
        some = (torch.randn(5, 8), torch.tensor([0, 3, 3, 10, 1]), torch.ones(5), 0.1)
        torch.testing.assert_close(stored.loss(*some), plain.loss(*some))


def test_what_is_saved_has_the_same_names(heads):
    for stored, plain in heads:
        assert stored.state_dict().keys() == plain.state_dict().keys()
        assert [piece.shape for piece in stored.pieces] == [(11, 8)]


def test_a_loss_to_learn_from_is_refused_in_words(heads):
    for stored, _ in heads:
        with pytest.raises(RuntimeError, match='weights="float32"'):
            stored.loss(torch.randn(2, 8, requires_grad=True), torch.tensor([0, 1]), torch.ones(2))
