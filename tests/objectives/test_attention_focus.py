import math

import pytest
import torch

from unspool.interfaces import AttentionStack
from unspool.objectives.attention_losses import AttentionFocus, entropy


def stack(*layers, lengths=None):
    layers = tuple(torch.as_tensor(it, dtype=torch.float32) for it in layers)
    N, T = layers[0].shape[0], layers[0].shape[2]
    return AttentionStack(layers, torch.tensor(lengths or [T] * N))


def focus(stacks):
    total, positions = AttentionFocus().sums(stacks)
    return total / positions


def test_by_hand():
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
    with pytest.raises(ValueError, match="needs a Transformer; a RNNLM has no heads"):
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
