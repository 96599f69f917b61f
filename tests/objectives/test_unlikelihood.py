import math
from types import SimpleNamespace

import pytest
import torch

from unspool.data.batch import Batch
from unspool.interfaces import Abilities, Clock
from unspool.objectives.cross_entropy import target_logp
from unspool.objectives.rollouts import make_prompts, rollout_batch
from unspool.objectives.unlikelihood import (
    SequenceUnlikelihood,
    Unlikelihood,
    candidates,
    mark_repeats,
    unlikelihood,
)

P = torch.tensor([0.1, 0.2, 0.3, 0.4])


class Model(Abilities):
    vocab_size, tokenizer = 4, None

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
    cost = unlikelihood(logp)
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
    with pytest.raises(ValueError, match="but Classifier predicts labels"):
        Unlikelihood().check(classifier("rnn"))


@pytest.mark.parametrize(
    ("tokens", "n", "marks"),
    [
        ((1, 2, 3, 1, 2), 2, [0, 0, 0, 1, 1]),
        ((1, 1, 1, 1), 2, [0, 1, 1, 1]),
        ((1, 2, 1, 3), 1, [0, 0, 1, 0]),
        ((1, 2, 3, 4, 1, 2, 3, 5), 4, [0] * 8),
        ((1, 2), 4, [0, 0]),
    ],
)
def test_repeated_by_hand(tokens, n, marks):
    assert mark_repeats(tokens, n) == marks


class Told(SequenceUnlikelihood):
    said = ()

    def generate(self, model, prompts, decoder, n=1):
        return [[SimpleNamespace(tokens=self.said)] for _ in prompts]


def told(said, **settings):
    objective = Told(**settings)
    object.__setattr__(objective, "said", said)
    return objective


def test_only_what_was_said_again_costs(transformer, rows, clock):
    model, batch = transformer(), rows()
    asked = make_prompts(model, batch, 2)  # 1 3 and 1 7 are given
    logp = target_logp(model, rollout_batch(model, batch, asked, [(5, 1, 3)] * 2))
    found = told((5, 1, 3), n=2, prompt=2)(model, batch, clock)
    # "1 3" was in the first row's prompt; in the second row nothing repeats.
    assert found.total.item() == pytest.approx(unlikelihood(logp[0, 2:4]).sum().item(), rel=1e-5)
    assert (found.weight, found.stats) == (6.0, {"repeated": 2.0})


def test_an_encoder_decoder_repeats_only_itself(translator, pairs):
    found = told((5, 5, 5))(translator(), pairs(), Clock(0, 1))
    assert found.stats == {"repeated": 0.0}
    assert found.total.item() == 0.0
    assert told((5, 5, 5), n=1)(translator(), pairs(), Clock(0, 1)).stats == {"repeated": 4.0}


def test_learning_makes_greedy_texts_repeat_less(transformer, rows, clock):
    model, batch = transformer(vocab_size=30, context=64), rows()
    objective = SequenceUnlikelihood(n=2, prompt=2, stretch=4.0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    counts = []
    for _ in range(60):
        found = objective(model, batch, clock)
        counts.append(found.stats["repeated"] / found.weight)
        optimizer.zero_grad()
        found.total.backward()
        optimizer.step()
    assert counts[0] > 0.3
    assert sum(counts[-10:]) / 10 < 0.75 * counts[0]


def test_an_impossible_n_is_refused():
    with pytest.raises(ValueError, match=r"\.n is 0"):
        SequenceUnlikelihood(n=0)
