import pytest
import torch

from unspool.data.batch import Batch
from unspool.models.masked_models import MaskedLMConfig

CONFIG = MaskedLMConfig(vocab_size=7, width=8, layers=2, heads=2, inner_width=8, eos=2, context=16)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return CONFIG.build().eval()


def test_every_place_looks_at_every_other_one(model):
    (one,) = model.fill([[4]], [[7, 5, 2]])
    (other,) = model.fill([[4]], [[7, 5, 6]])
    assert one.shape == (3, 7)
    assert not torch.allclose(one[0], other[0])
    torch.testing.assert_close(one.exp().sum(-1), torch.ones(3))


def test_a_hidden_place_has_a_vector_of_its_own_by_hand(model):
    embedded = model.embedded(torch.tensor([[3, 7]]))
    assert torch.equal(embedded[0, 0], model.embed.weight[3])
    assert torch.equal(embedded[0, 1], model.mask)


def test_batch_mates_and_padding_change_nothing(model):
    alone = model.fill([[4]], [[7, 5]])[0]
    together = model.fill([[4, 5, 6], [4]], [[7, 7, 7], [7, 5]])[1]
    torch.testing.assert_close(alone, together)


def test_positions_that_leave_hidden_places_alike_are_refused():
    with pytest.raises(
        ValueError,
        match=r"positions is 'rotary', but must be one of 'learned', 'sinusoidal', 'sinusoidal_halves'",
    ):
        MaskedLMConfig(vocab_size=7, width=8, layers=2, heads=2, inner_width=8, eos=2, positions="rotary")


def test_it_takes_all_the_room_and_no_step(model):
    assert model.lengths([[4], [5]], [3, 9], 5) == [[(3, 0.0)], [(9, 0.0)]]
    assert model.infilling is model
    with pytest.raises(ValueError, match=r"MaskedLM is a masked model.*MaskPredict\(\)"):
        model.start([[1]])
    with pytest.raises(ValueError, match="is a masked model"):
        model.step(None, torch.tensor([1]))


def test_it_tells_where_its_heads_look_at_all_but_padding(model):
    rows = torch.tensor([[3, 7, 5, 7], [6, 7, 0, 0]])
    batch = Batch(rows, torch.tensor([4, 2]), rows, torch.ones(2, 4))
    hidden, (stack,) = model.attention_reading.read_attention(batch)
    assert model.attention_heads == ((2, 2),)
    torch.testing.assert_close(hidden, model.hidden_for(batch))
    assert [it.shape for it in stack.layers] == [(2, 2, 4, 4)] * 2
    for alpha in stack.layers:
        torch.testing.assert_close(alpha.sum(-1), torch.ones(2, 2, 4))
        assert (alpha[0] > 0).all()
        assert not alpha[1, :, :, 2:].any()
    assert stack.lengths_N.tolist() == [4, 2]
