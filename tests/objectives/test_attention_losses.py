import math

import pytest
import torch

from unspool.interfaces import AttentionStack
from unspool.objectives.attention_losses import (
    AttentionFocus,
    AttentionLoss,
    AttentionNear,
    distance,
    entropy,
)


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
    assert AttentionLoss().needs_attention
    AttentionLoss().check(classifier("transformer"))
    with pytest.raises(ValueError, match="Classifier does not return attention weights"):
        AttentionLoss().check(classifier("rnn"))


@pytest.mark.parametrize("kind", ["masked_lm", "masked_seq2seq"])
def test_models_that_fill_hidden_places_have_attention(masked, kind):
    AttentionLoss().check(masked(kind))
    AttentionNear().check(masked(kind))
    one_layer = {
        it: 1 for it in ("layers", "encoder_layers", "decoder_layers") if it in masked(kind).config.__dict__
    }
    with pytest.raises(ValueError, match="this model has only one"):
        AttentionNear().check(masked(kind, **one_layer))


def stack(*layers, lengths=None):
    layers = tuple(torch.as_tensor(it, dtype=torch.float32) for it in layers)
    N, T = layers[0].shape[0], layers[0].shape[2]
    return AttentionStack(layers, torch.tensor(lengths or [T] * N))


def focus(stacks):
    total, positions = AttentionFocus().sums(stacks)
    return total / positions


def test_attention_focus_by_hand():
    # One head: it looks at one place, then at two alike, then ¼ ¼ ½.
    alpha = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]]
    last = 0.5 * math.log(4) + 0.5 * math.log(2)
    assert focus((stack(alpha),)).item() == pytest.approx((0 + math.log(2) + last) / 3)


@pytest.mark.parametrize("T", [1, 4, 9])
def test_one_place_costs_nothing_and_all_places_alike_ln_t(T):
    assert focus((stack(torch.eye(T).expand(2, 3, T, T)),)).item() == 0.0
    assert focus((stack(torch.full((2, 3, T, T), 1 / T)),)).item() == pytest.approx(math.log(T), abs=1e-6)


def test_heads_and_layers_twice_change_nothing():
    alpha = torch.randn(2, 3, 5, 5).softmax(-1)
    once = focus((stack(alpha),)).item()
    assert focus((stack(torch.cat([alpha, alpha], dim=1)),)).item() == pytest.approx(once)
    assert focus((stack(alpha, alpha),)).item() == pytest.approx(once)


def test_padding_counts_for_nothing():
    alpha = torch.randn(2, 3, 5, 5).softmax(-1)
    other = alpha.clone()
    other[1, :, 3:] = 0.2
    lengths = [5, 3]
    assert focus((stack(alpha, lengths=lengths),)).item() == focus((stack(other, lengths=lengths),)).item()


def test_what_may_not_be_looked_at_has_no_gradient():
    score = torch.randn(1, 1, 4, 4, requires_grad=True)
    alpha = score.masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf).softmax(-1)
    entropy(alpha).sum().backward()
    assert torch.isfinite(score.grad).all()
    assert not score.grad.triu(1).any()


def test_gradient_is_that_of_differences():
    score = torch.randn(1, 2, 3, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: entropy(s.softmax(-1)), score)


def test_a_model_without_attention_is_refused(lstm):
    with pytest.raises(ValueError, match="needs a Transformer, but RNNLM"):
        AttentionFocus().check(lstm)


def test_a_batch_counts_by_its_positions(transformer, rows, clock):
    model, batch = transformer(), rows()
    found = AttentionFocus()(model, batch, clock)
    _, stacks = model.read_attention(batch)
    assert found.weight == 8.0
    assert found.total.item() == pytest.approx(focus(stacks).item() * 8)
    assert found.stats == {"attention_focus": pytest.approx(found.total.item())}
    found.total.backward()
    assert model.blocks[0].attention.qkv.weight.grad.abs().sum() > 0


def stack_attention_near(*layers, lengths=None):
    layers = tuple(torch.as_tensor(it, dtype=torch.float32) for it in layers)
    N, T = layers[0].shape[0], layers[0].shape[2]
    return AttentionStack(layers, torch.tensor(lengths or [T] * N))


def near(stacks, cap):
    total, positions = AttentionNear(cap).sums(stacks)
    return total / positions


def test_attention_near_by_hand():
    # Distances 0; 1 with ½; 4 with ¼ and 1 with ¼: 0, 0.5, 1.25. The last layer looks away, for nothing.
    alpha = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]]
    far = [[[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]]
    assert near((stack_attention_near(alpha, far),), cap=10.0).item() == pytest.approx((0 + 0.5 + 1.25) / 3)
    assert near((stack_attention_near(alpha, far),), cap=1.0).item() == pytest.approx((0 + 0.5 + 1.0) / 3)


def test_the_diagonal_costs_nothing():
    eye = torch.eye(6).expand(2, 3, 6, 6)
    assert near((stack_attention_near(eye, eye),), 9.0).item() == 0.0


@pytest.mark.parametrize("T", [2, 50, 300])
def test_it_is_bounded_for_every_length(T):
    first = torch.zeros(1, 1, T, T)
    first[..., 0] = 1.0
    assert near((stack_attention_near(first, first),), 9.0).item() <= 9.0


def test_past_the_cap_there_is_no_gradient():
    alpha = torch.zeros(1, 1, 5, 5)
    alpha[..., 0] = 1.0  # distances 0 1 4 9 16
    alpha.requires_grad_()
    near((AttentionStack((alpha, alpha.detach()), torch.tensor([5])),), 5.0).backward()
    rows = alpha.grad[0, 0].abs().sum(-1)
    assert (rows[:3] > 0).tolist() == [True, True, True]
    assert rows[3:].tolist() == [0.0, 0.0]


def test_the_last_layer_is_free(transformer, rows, clock):
    model, batch = transformer(), rows()
    AttentionNear()(model, batch, clock).total.backward()
    first, last = (block.attention.qkv.weight.grad for block in model.blocks)
    assert first.abs().sum() > 0
    assert last is None


def test_both_sides_of_an_encoder_decoder_count(translator, pairs, clock):
    model, batch = translator(), pairs()
    AttentionNear()(model, batch, clock).total.backward()
    for blocks in (model.encoder.blocks, model.blocks):
        assert blocks[0].attention.qkv.weight.grad.abs().sum() > 0
        assert blocks[-1].attention.qkv.weight.grad is None


def test_distance_of_uniform_rows():
    # from the middle of three: (1 + 0 + 1) / 3
    assert distance(torch.full((1, 1, 3, 3), 1 / 3))[0, 0].tolist() == pytest.approx([5 / 3, 2 / 3, 5 / 3])


def test_one_layer_leaves_nothing_to_learn(transformer, lstm):
    with pytest.raises(ValueError, match="excludes the last layer"):
        AttentionNear().check(transformer(layers=1))
    with pytest.raises(ValueError, match="needs a Transformer"):
        AttentionNear().check(lstm)
    AttentionNear().check(transformer(layers=2))


@pytest.mark.parametrize("cap", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_cap_is_refused(cap):
    with pytest.raises(ValueError, match="cap"):
        AttentionNear(cap)
