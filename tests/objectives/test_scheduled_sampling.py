import math

import pytest
import torch

from unspool.data.batch import Batch
from unspool.interfaces import Abilities, Clock
from unspool.objectives import CrossEntropy
from unspool.objectives.scheduled_sampling import (
    DECAYS,
    Exponential,
    InverseSigmoid,
    Linear,
    ScheduledSampling,
    is_replaceable,
    sample_tokens,
)

ALL_OWN = {"kind": "linear", "begin": 0.0}
NONE_OWN = {"kind": "exponential", "k": 1.0}


class Successor(Abilities):
    """Says for certain the token after the one it reads, of five."""

    vocab_size = 5

    def hidden_for(self, batch):
        return torch.nn.functional.one_hot((batch.inputs_NT + 1) % 5, 5).float()

    def head(self, hidden):
        return hidden.clamp(min=1e-30).log()


def test_by_hand():
    row = torch.tensor([[0, 3, 3, 3, 0]])
    batch = Batch(row[:, :-1], torch.tensor([4]), row[:, 1:], torch.ones(1, 4))
    own = torch.tensor([[False, True, False, True]])
    # What follows 0 is 1, and what follows the 3 that stays is 4.
    one = ScheduledSampling(ALL_OWN, 1).mix_tokens(Successor(), batch, own)
    assert one.inputs_NT.tolist() == [[0, 1, 3, 4]]
    everything = is_replaceable(batch)
    # In one round each follows the right token before it; step by step, its own.
    assert ScheduledSampling(ALL_OWN, 1).mix_tokens(Successor(), batch, everything).inputs_NT.tolist() == [
        [0, 1, 4, 4]
    ]
    assert ScheduledSampling(ALL_OWN, 9).mix_tokens(Successor(), batch, everything).inputs_NT.tolist() == [
        [0, 1, 2, 3]
    ]
    assert batch.inputs_NT.tolist() == [[0, 3, 3, 3]]  # untouched


def test_with_enough_rounds_it_is_what_one_would_draw_step_by_step(transformer, rows):
    model, batch = transformer().eval(), rows()
    torch.manual_seed(5)
    own, dice = is_replaceable(batch), torch.rand(batch.inputs_NT.shape)
    torch.manual_seed(5)
    objective = ScheduledSampling(ALL_OWN, 9)
    expected = batch.inputs_NT.clone()
    for t in range(1, expected.shape[1]):
        said = sample_tokens(
            model, Batch(expected, batch.lengths_N, batch.targets_NU, batch.weights_NU), dice
        )
        expected[:, t] = torch.where(own[:, t], said[:, t - 1], expected[:, t])
    with torch.no_grad():
        assert torch.equal(objective.mix_tokens(model, batch, own).inputs_NT, expected)


def test_draws_follow_the_distribution():
    class Fixed(Successor):
        def hidden_for(self, batch):
            return torch.tensor([0.1, 0.0, 0.2, 0.7, 0.0]).log().expand(*batch.inputs_NT.shape, 5)

        def head(self, hidden):
            return hidden

    zeros = torch.zeros(100, 200, dtype=torch.long)
    torch.manual_seed(0)
    found = sample_tokens(Fixed(), Batch(zeros, zeros[:, 0], zeros, zeros), torch.rand(100, 200))
    share = torch.bincount(found.flatten(), minlength=5) / found.numel()
    torch.testing.assert_close(share, torch.tensor([0.1, 0.0, 0.2, 0.7, 0.0]), atol=0.02, rtol=0)
    assert share[1] == share[4] == 0


def test_all_right_is_cross_entropy(transformer, rows, clock):
    model, batch = transformer(), rows()
    found = ScheduledSampling(NONE_OWN, smoothing=0.1)(model, batch, clock)
    assert found.total.item() == CrossEntropy(0.1)(model, batch, clock).total.item()
    assert found.stats["own_tokens"] == 0.0


def test_the_share_of_own_tokens_follows_the_decay(transformer, rows):
    objective = ScheduledSampling({"kind": "linear", "slope": 0.1})
    model = transformer()
    torch.manual_seed(0)
    counts = [
        sum(objective(model, rows(), Clock(update, 10)).stats["own_tokens"] for _ in range(40))
        for update in (0, 5, 10)
    ]
    assert counts[0] == 0
    assert 0.35 < counts[1] / (40 * 6) < 0.65
    assert counts[2] == 40 * 6  # never the first token of a row, and no padding


def test_it_works_for_recurrent_models_too(lstm, rows, clock):
    loss = ScheduledSampling(ALL_OWN, 9)(lstm, rows(), clock)
    loss.total.backward()
    assert lstm.embed.weight.grad.abs().sum() > 0


def test_wrong_settings_are_refused(classifier):
    with pytest.raises(ValueError, match="rounds is 0"):
        ScheduledSampling(rounds=0)
    with pytest.raises(ValueError, match="smoothing"):
        ScheduledSampling(smoothing=1.0)
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        ScheduledSampling({"kind": "lineal"})
    with pytest.raises(ValueError, match=r"objective\.decay"):
        ScheduledSampling({"kind": "linear", "slop": 1})
    with pytest.raises(ValueError, match="predicts labels"):
        ScheduledSampling().check(classifier("rnn"))


def test_decays_by_hand():
    assert [Linear(1.0, 0.25, 0.3)(i) for i in range(5)] == pytest.approx([1, 0.75, 0.5, 0.3, 0.3])
    assert [Exponential(0.5)(i) for i in range(4)] == [1, 0.5, 0.25, 0.125]
    assert InverseSigmoid(10.0)(0) == pytest.approx(10 / 11)
    assert InverseSigmoid(10.0)(10) == pytest.approx(10 / (10 + math.e))


@pytest.mark.parametrize("kind", DECAYS)
def test_it_falls_and_stays_a_probability(kind):
    values = [DECAYS[kind]()(i) for i in (0, 1, 10, 1000, 10**9)]
    assert values == sorted(values, reverse=True)
    assert all(0 <= it <= 1 for it in values)


def test_half_of_an_inverse_sigmoid():
    assert InverseSigmoid(50.0)(round(50 * math.log(50))) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Linear, {"begin": 1.1}),
        (Linear, {"floor": -0.1}),
        (Linear, {"slope": -1.0}),
        (Exponential, {"k": 1.5}),
        (InverseSigmoid, {"k": 0.5}),
    ],
)
def test_an_invalid_decay_is_refused(kind, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        kind(**wrong)
