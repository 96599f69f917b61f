from types import SimpleNamespace

import pytest
import torch

from unspool.interfaces import Clock
from unspool.objectives.cross_entropy import target_logp
from unspool.objectives.rollouts import questions, rows_of
from unspool.objectives.unlikelihood import SequenceUnlikelihood, repeated, unlikely


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
    assert repeated(tokens, n) == marks


class Told(SequenceUnlikelihood):
    said = ()

    def is_encoder_decoder(self, model, asked, search, n=1):
        return [[SimpleNamespace(tokens=self.said)] for _ in asked]


def told(said, **settings):
    objective = Told(**settings)
    object.__setattr__(objective, "said", said)
    return objective


def test_only_what_was_said_again_costs(transformer, rows, clock):
    model, batch = transformer(), rows()
    asked = questions(model, batch, 2)  # 1 3 and 1 7 are given
    logp = target_logp(model, rows_of(model, batch, asked, [(5, 1, 3)] * 2))
    found = told((5, 1, 3), n=2, prompt=2)(model, batch, clock)
    # "1 3" was in the first row's prompt; in the second row nothing repeats.
    assert found.total.item() == pytest.approx(unlikely(logp[0, 2:4]).sum().item(), rel=1e-5)
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
    with pytest.raises(ValueError, match="n=0"):
        SequenceUnlikelihood(n=0)
