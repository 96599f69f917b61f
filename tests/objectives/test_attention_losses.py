import pytest
import torch

from unspool.objectives.attention_losses import AttentionLoss, mean_over_positions
from unspool.objectives.attention_near import AttentionNear


def test_by_hand():
    # Two heads; of two rows the second has one real position: (1 + 2 + 3 + 4 + 5 + 7) / 6.
    cost = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 9.0], [7.0, 9.0]]])
    assert mean_over_positions([(cost, torch.tensor([2, 1]))]).item() == pytest.approx(22 / 6)


def test_layers_count_by_their_positions():
    short, long = torch.ones(1, 1, 1), torch.zeros(1, 1, 3)
    found = mean_over_positions([(short, torch.tensor([1])), (long, torch.tensor([3]))])
    assert found.item() == pytest.approx(1 / 4)


def test_a_classifier_may_have_attention_or_not(classifier):
    assert AttentionLoss().watches
    AttentionLoss().check(classifier("transformer"))
    with pytest.raises(ValueError, match="a Classifier has no heads"):
        AttentionLoss().check(classifier("rnn"))


@pytest.mark.parametrize("kind", ["masked_lm", "masked_seq2seq"])
def test_models_that_fill_hidden_places_have_attention(masked, kind):
    AttentionLoss().check(masked(kind))
    AttentionNear().check(masked(kind))
    one_layer = {
        it: 1 for it in ("layers", "encoder_layers", "decoder_layers") if it in masked(kind).config.__dict__
    }
    with pytest.raises(ValueError, match="this model has no other"):
        AttentionNear().check(masked(kind, **one_layer))
