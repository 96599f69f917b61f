import math

import pytest
import torch

from unspool.data.batch import Batch
from unspool.heads import HEADS
from unspool.interfaces import Abilities, Clock
from unspool.objectives import OBJECTIVES, CrossEntropy, cross_entropy as module
from unspool.objectives.cross_entropy import gather_logp, target_logp

# Two rows over three tokens; p is what the head says, whatever the hidden vector.
P = torch.tensor([0.5, 0.25, 0.25])


class Head:
    def __call__(self, hidden):
        return P.log().expand(*hidden.shape[:-1], 3)

    def loss(self, hidden_MD, targets_M, weights_M, smoothing=0.0):
        logp_MV = self(hidden_MD)
        nll_M = -logp_MV.gather(1, targets_M[:, None])[:, 0]
        total_M = (1 - smoothing) * nll_M - smoothing * logp_MV.mean(-1)
        return (weights_M * total_M).sum(), (weights_M * nll_M).sum()


class Model(Abilities):
    labels = None

    def __init__(self):
        self.head = Head()

    def hidden_for(self, batch):
        return torch.zeros(*batch.targets_NU.shape, 4)


def batch(weights):
    targets = torch.tensor([[0, 1], [2, 0]])
    return Batch(targets, torch.tensor([2, 1]), targets, torch.tensor(weights))


def test_by_hand():
    loss = CrossEntropy()(Model(), batch([[1.0, 1.0], [1.0, 0.0]]), Clock(0, 1))
    assert loss.total.item() == pytest.approx(math.log(2) + 2 * math.log(4))
    assert loss.weight == 3.0
    assert loss.stats == {"nll": pytest.approx(math.log(2) + 2 * math.log(4))}


def test_smoothing_by_hand():
    loss = CrossEntropy(0.1)(Model(), batch([[1.0, 0.0], [0.0, 0.0]]), Clock(0, 1))
    mean = (math.log(2) + 2 * math.log(4)) / 3
    assert loss.total.item() == pytest.approx(0.9 * math.log(2) + 0.1 * mean)
    assert loss.stats["nll"] == pytest.approx(math.log(2))


@pytest.mark.parametrize("kind", HEADS)
def test_padding_counts_for_nothing_whatever_stands_there(kind):
    torch.manual_seed(0)
    model = Model()
    model.head = HEADS[kind]().build(4, 3)

    def found(padding):
        hidden_NUD = torch.arange(16.0).view(2, 2, 4).div(16).masked_fill(PADDING[..., None], padding)
        hidden_NUD.requires_grad_()
        model.hidden_for = lambda _: hidden_NUD
        loss = CrossEntropy(0.1)(model, batch([[1.0, 0.5], [2.0, 0.0]]), Clock(0, 1))
        return loss.total, loss.stats["nll"], torch.autograd.grad(loss.total, hidden_NUD)[0]

    one, other = found(0.0), found(9.0)
    for this, that in zip(one, other, strict=True):
        torch.testing.assert_close(this, that)
    assert not one[2][PADDING].any()


PADDING = torch.tensor([[False, False], [False, True]])


def test_weights_weigh():
    loss = CrossEntropy()(Model(), batch([[0.5, 0.0], [0.0, 2.0]]), Clock(0, 1))
    assert loss.total.item() == pytest.approx(2.5 * math.log(2))
    assert loss.weight == 2.5


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_an_impossible_smoothing_is_refused(smoothing):
    with pytest.raises(ValueError, match="smoothing"):
        CrossEntropy(smoothing)


def test_it_has_its_name():
    assert OBJECTIVES["cross_entropy"] is CrossEntropy


def test_labels_that_are_right_are_counted_by_their_weight():
    model = Model()
    assert "right" not in CrossEntropy()(model, batch([[1.0, 1.0], [1.0, 1.0]]), Clock(0, 1)).stats
    model.labels = ("a", "b", "c")
    # Label 0 is the most probable: targets 0 1 / 2 0, of which the last counts by half, and one not at all.
    found = CrossEntropy()(model, batch([[1.0, 1.0], [0.0, 0.5]]), Clock(0, 1))
    assert (found.stats["right"], found.weight) == (1.5, 2.5)


def head(hidden_MD):
    return torch.log_softmax(hidden_MD, dim=-1)


def test_chosen_logp_by_hand():
    hidden = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    found = gather_logp(head, hidden, torch.tensor([[0, 2], [2, 2]]), 3)
    assert found.exp().flatten().tolist() == pytest.approx([0.5, 0.25, 0.7, 0.7])


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_pieces_change_neither_value_nor_gradient(rows, monkeypatch):
    hidden, tokens = torch.randn(5, 4, requires_grad=True), torch.randint(4, (5, 3))
    whole = gather_logp(head, hidden, tokens, 4)
    (expected,) = torch.autograd.grad(whole.square().sum(), hidden)
    monkeypatch.setattr(module, "MAX_SCORES", 4 * rows)
    found = gather_logp(head, hidden, tokens, 4)
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), hidden)[0], expected)


def test_targets_are_scored_as_cross_entropy_does_and_padding_is_0(transformer, rows):
    model, batch = transformer(), rows()
    found = target_logp(model, batch)
    total, _ = model.head.loss(
        model.hidden_for(batch).flatten(0, 1), batch.targets_NU.flatten(), batch.weights_NU.flatten()
    )
    assert -found.sum().item() == pytest.approx(total.item(), rel=1e-5)
    assert not found[batch.weights_NU == 0].any()
