import pytest
import torch

from unspool.interfaces import AttentionStack
from unspool.objectives.attention_losses import AttentionNear, distance


def stack(*layers, lengths=None):
    layers = tuple(torch.as_tensor(it, dtype=torch.float32) for it in layers)
    N, T = layers[0].shape[0], layers[0].shape[2]
    return AttentionStack(layers, torch.tensor(lengths or [T] * N))


def near(stacks, cap):
    total, positions = AttentionNear(cap).sums(stacks)
    return total / positions


def test_by_hand():
    # Distances 0; 1 with ½; 4 with ¼ and 1 with ¼: 0, 0.5, 1.25. The last layer looks away, for nothing.
    alpha = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]]
    far = [[[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]]
    assert near((stack(alpha, far),), cap=10.0).item() == pytest.approx((0 + 0.5 + 1.25) / 3)
    assert near((stack(alpha, far),), cap=1.0).item() == pytest.approx((0 + 0.5 + 1.0) / 3)


def test_the_diagonal_costs_nothing():
    eye = torch.eye(6).expand(2, 3, 6, 6)
    assert near((stack(eye, eye),), 9.0).item() == 0.0


@pytest.mark.parametrize("T", [2, 50, 300])
def test_it_is_bounded_for_every_length(T):
    first = torch.zeros(1, 1, T, T)
    first[..., 0] = 1.0
    assert near((stack(first, first),), 9.0).item() <= 9.0


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
    with pytest.raises(ValueError, match="leaves the last layer free"):
        AttentionNear().check(transformer(layers=1))
    with pytest.raises(ValueError, match="needs a Transformer"):
        AttentionNear().check(lstm)
    AttentionNear().check(transformer(layers=2))


@pytest.mark.parametrize("cap", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_cap_is_refused(cap):
    with pytest.raises(ValueError, match="cap"):
        AttentionNear(cap)
