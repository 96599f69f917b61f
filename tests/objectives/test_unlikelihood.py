import math

import pytest
import torch

from unspool.data.batch import Batch
from unspool.interfaces import Abilities, Clock
from unspool.objectives.unlikelihood import Unlikelihood, candidates, unlikely

P = torch.tensor([0.1, 0.2, 0.3, 0.4])


class Model(Abilities):
    vocab_size, text = 4, None

    def head(self, hidden):
        return P.log().expand(*hidden.shape[:-1], 4)

    def hidden_for(self, batch):
        return torch.zeros(*batch.targets_NU.shape, 2)


def test_by_hand():
    # Reads BOS 1 2 1, should say 1 2 1 3: candidates {}, {1}, {2}, {1 2}.
    row = torch.tensor([[0, 1, 2, 1, 3]])
    batch = Batch(row[:, :-1], torch.tensor([4]), row[:, 1:], torch.ones(1, 4))
    found = Unlikelihood()(Model(), batch, Clock(0, 1))
    one, two = (-math.log(1 - p) for p in (0.2, 0.3))
    assert found.total.item() == pytest.approx(2 * one + 2 * two, rel=1e-5)
    assert found.weight == 4.0


def test_candidates_count_once_and_not_where_they_are_right():
    read, targets = torch.tensor([[5, 5, 6, 5]]), torch.tensor([[5, 6, 5, 7]])
    assert candidates(read, targets)[0].tolist() == [
        [False, False, False, False],
        [False, True, False, False],
        [False, False, True, False],
        [False, True, True, False],
    ]


def test_bos_between_packed_texts_is_no_candidate():
    read, targets = torch.tensor([[1, 5, 2, 1, 6]]), torch.tensor([[5, 2, 1, 6, 7]])
    assert candidates(read, targets, bos=1)[0, -1].tolist() == [False, True, True, False, True]


def test_certainty_stays_finite_and_has_a_gradient_below_it():
    logp = torch.tensor([0.0, -1e-9, -0.5], requires_grad=True)
    cost = unlikely(logp)
    cost.sum().backward()
    assert torch.isfinite(cost).all()
    assert torch.isfinite(logp.grad).all()
    p = math.exp(-0.5)
    assert logp.grad[2].item() == pytest.approx(p / (1 - p), rel=1e-5)


def test_padding_counts_for_nothing(transformer, rows, clock):
    model, batch = transformer(), rows()
    one = Unlikelihood()(model, batch, clock)
    other = batch.inputs_NT.clone()
    other[1, 3:] = 4
    two = Unlikelihood()(model, Batch(other, batch.lengths_N, batch.targets_NU, batch.weights_NU), clock)
    assert one.total.item() == pytest.approx(two.total.item(), rel=1e-5)


def test_labels_are_refused(classifier):
    with pytest.raises(ValueError, match="labels are none"):
        Unlikelihood().check(classifier("rnn"))
