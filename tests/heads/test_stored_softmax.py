import pytest
import torch

from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import StoredEmbedding, quantise_int8
from unspool.heads.softmax import Softmax, TiedSoftmax


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
