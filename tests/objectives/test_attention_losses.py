import pytest
import torch

from unspool.interfaces import AttentionStack
from unspool.objectives.attention_losses import AttentionLoss, AttentionNear


class FirstWeight(AttentionLoss):
    """What a position gives to the first one is what it costs."""

    def cost(self, alpha_NHTT):
        return alpha_NHTT[..., 0]


def test_by_hand():
    # Two heads; of two rows the second has one real position: (1 + 2 + 3 + 4 + 5 + 7) / 6, by 2 heads each.
    cost = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 9.0], [7.0, 9.0]]])[..., None]
    total, positions = FirstWeight().sums([AttentionStack((cost,), torch.tensor([2, 1]))])
    assert (total.item(), positions) == (pytest.approx(22 / 2), 6 / 2)


def test_layers_count_by_their_positions():
    short, long = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 3, 1)
    stacks = [AttentionStack((short,), torch.tensor([1])), AttentionStack((long,), torch.tensor([3]))]
    total, positions = FirstWeight().sums(stacks)
    assert total.item() / positions == pytest.approx(1 / 4)


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
