from dataclasses import dataclass, replace

import pytest
import torch

from unspool.interfaces import Clock, Loss, Objective, PreparedLoss
from unspool.objectives import CrossEntropy
from unspool.objectives.attention_losses import AttentionFocus, AttentionNear
from unspool.objectives.masked import Masked, MaskedDiffusionLoss
from unspool.objectives.scheduled_sampling import ScheduledSampling
from unspool.objectives.unlikelihood import Unlikelihood
from unspool.objectives.weighted_sum import AuxiliarySettings, SharedPass, WeightedSum


@dataclass(frozen=True)
class Fixed(Objective):
    """Always the same loss, of its own weight; keeps the clocks it was shown."""

    value: float
    weight: float = 4.0
    seen: tuple = ()

    def prepare(self, model, batch, clock):
        return PreparedLoss(self.weight, lambda reader: self(reader, batch, clock))

    def __call__(self, model, batch, clock):
        SEEN.append(clock.update)
        return Loss(torch.tensor(self.value), self.weight, {"fixed": self.value, "nll": 99.0})


SEEN = []


@dataclass(frozen=True)
class Main(Fixed):
    def __call__(self, model, batch, clock):
        return Loss(torch.tensor(self.value), self.weight, {"nll": 1.0})


class Nobody:
    attention_reading = None


def test_by_hand():
    # 8 over 4 targets; beside it ½ of 6 over 2, which is 3 a target: 8 + ½ · 4 · 3.
    both = WeightedSum(Main(8.0, 4.0), ((Fixed(6.0, 2.0), AuxiliarySettings(0.5)),))
    found = both(Nobody(), None, Clock(0, 10))
    assert found.total.item() == pytest.approx(14.0)
    assert found.weight == 4.0
    assert found.stats == {"nll": 1.0, "fixed": 12.0}


@pytest.mark.parametrize("share", [AuxiliarySettings(0.0), AuxiliarySettings(1.0, begin=5)])
def test_objectives_of_weight_zero_are_not_called(share):
    SEEN.clear()
    found = WeightedSum(Main(8.0), ((Fixed(6.0), share),))(Nobody(), None, Clock(4, 10))
    assert (found.total.item(), found.stats, SEEN) == (8.0, {"nll": 1.0}, [])


def test_its_clock_begins_when_it_is_switched_on():
    SEEN.clear()
    both = WeightedSum(Main(8.0), ((Fixed(6.0), AuxiliarySettings(1.0, begin=5)),))
    for update in (4, 5, 6):
        both(Nobody(), None, Clock(update, 10))
    assert SEEN == [0, 1]


def test_an_objective_that_had_nothing_to_learn_from_adds_nothing():
    both = WeightedSum(Main(8.0), ((Fixed(0.0, 0.0), AuxiliarySettings()),))
    assert both(Nobody(), None, Clock(0, 10)).total.item() == 8.0


def test_the_gradient_is_the_weighted_sum_of_gradients(transformer, rows, clock):
    model, batch = transformer(), rows()

    def gradient(objective):
        model.zero_grad()
        objective(model, batch, clock).total.backward()
        return torch.cat([it.grad.flatten() for it in model.parameters() if it.grad is not None])

    main, focus = gradient(CrossEntropy()), gradient(AttentionFocus())
    both = gradient(WeightedSum(CrossEntropy(), ((AttentionFocus(), AuxiliarySettings(0.3)),)))
    torch.testing.assert_close(
        both, main + 0.3 * _as_long(focus, main, model, batch, clock), atol=1e-5, rtol=1e-4
    )


def _as_long(gradient, like, model, batch, clock):
    """The focus gradient has no part for the head's bias and norm: zeros stand for what has none."""
    model.zero_grad()
    AttentionFocus()(model, batch, clock).total.backward()
    parts = [torch.zeros_like(it) if it.grad is None else it.grad for it in model.parameters()]
    return torch.cat([it.flatten() for it in parts])


def test_scheduled_sampling_leaves_what_stands_beside_it_its_gradient(transformer, rows, clock):
    model, batch = transformer(), rows()
    own = ScheduledSampling({"kind": "linear", "begin": 0.0})
    grads = []
    for weight in (1.0, 3.0):
        torch.manual_seed(1)
        model.zero_grad()
        WeightedSum(own, ((Unlikelihood(), AuxiliarySettings(weight)),))(model, batch, clock).total.backward()
        grads.append(model.blocks[0].attention.qkv.weight.grad.clone())
    assert not torch.allclose(*grads)


def test_one_pass_serves_both(transformer, rows, clock):
    model, batch = transformer(), rows()
    calls = []
    model.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    WeightedSum(CrossEntropy(), ((AttentionFocus(), AuxiliarySettings(0.3)),))(model, batch, clock)
    assert len(calls) == 1


@pytest.mark.parametrize("main", [Masked(), MaskedDiffusionLoss()])
@pytest.mark.parametrize("kind", ["masked_lm", "masked_seq2seq"])
def test_losses_on_attention_are_of_the_pass_with_hidden_places(masked, rows, pairs, clock, kind, main):
    model, batch = masked(kind), rows() if kind == "masked_lm" else pairs()
    batch = replace(batch, seeds_N=torch.arange(len(batch.lengths_N)))
    calls = []
    model.blocks[0].register_forward_hook(lambda *_: calls.append(1))

    def found(objective):
        torch.manual_seed(5)
        model.zero_grad()
        loss = objective(model, batch, clock)
        loss.total.backward()
        return loss, model.blocks[0].attention.qkv.weight.grad.clone()

    alone, plain = found(main)
    with torch.no_grad():
        torch.manual_seed(5)
        _, stacks = model.read_attention(main.mask_batch(model, batch))
    calls.clear()
    for other in (AttentionFocus(), AttentionNear()):
        cost, positions = other.sums(stacks)
        expected = cost / positions
        both, moved = found(WeightedSum(main, ((other, AuxiliarySettings(0.3)),)))
        torch.testing.assert_close(both.total, alone.total + 0.3 * alone.weight * expected)
        assert both.weight == alone.weight
        assert not torch.allclose(moved, plain)
    assert calls == [1, 1]
    off, same = found(WeightedSum(main, ((AttentionFocus(), AuxiliarySettings(0.0)),)))
    assert torch.equal(off.total, alone.total)
    assert torch.equal(same, plain)


@pytest.mark.parametrize(
    "wrong", [{"weight": -1.0}, {"weight": float("nan")}, {"weight": float("inf")}, {"begin": -1}]
)
def test_an_impossible_share_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AuxiliarySettings(**wrong)


def test_a_model_that_one_of_them_cannot_teach_is_refused(lstm):
    with pytest.raises(ValueError, match="needs a Transformer"):
        WeightedSum(CrossEntropy(), ((AttentionFocus(), AuxiliarySettings()),)).check(lstm)


@dataclass(frozen=True)
class Rewarded(Fixed):
    @property
    def uses_reward(self):
        return True


def test_a_reward_counts_where_it_is_ever_on():
    assert not WeightedSum(
        Main(1.0), ((Rewarded(1.0), AuxiliarySettings(0.0)), (Fixed(1.0), AuxiliarySettings()))
    ).uses_reward
    assert WeightedSum(Main(1.0), ((Rewarded(1.0), AuxiliarySettings(0.1, begin=9)),)).uses_reward
    assert WeightedSum(Rewarded(1.0), ()).uses_reward


class Counting:
    """Counts its passes."""

    attention_reading = None
    infilling = None
    text = "its own"

    def __init__(self):
        self.passes = []

    def hidden_for(self, batch):
        self.passes.append(batch)
        return torch.zeros(1)


class Telling(Counting):
    @property
    def attention_reading(self):
        return self

    def read_attention(self, batch):
        self.passes.append((batch, "told"))
        return torch.ones(1), ("stack",)


class Filling(Telling):
    @property
    def infilling(self):
        return self

    def read_hidden(self, batch, stacks=None):
        self.passes.append((batch, stacks is not None))
        if stacks is not None:
            stacks.append("stack")
        return torch.ones(2), "lengths"


def test_one_pass_however_often_it_is_asked():
    model = Counting()
    shared = SharedPass(model, "batch", with_attention=False)
    assert shared.hidden_for("batch") is shared.hidden_for("batch")
    assert model.passes == ["batch"]


def test_a_pass_without_gradients_is_not_shared():
    model = Telling()
    shared = SharedPass(model, "batch", with_attention=True)
    with torch.no_grad():
        shared.hidden_for("batch")
        assert shared.read_attention("batch")[1] == ("stack",)
    shared.hidden_for("batch")
    shared.read_attention("batch")
    assert model.passes == ["batch", ("batch", "told"), ("batch", "told")]


def test_another_batch_is_another_pass():
    model, batch = Counting(), ["batch"]
    shared = SharedPass(model, batch, with_attention=False)
    shared.hidden_for(batch)
    shared.hidden_for(list(batch))
    assert len(model.passes) == 2


def test_whoever_comes_first_where_attention_is_wanted_there_is_one_pass():
    for order in ((0, 1), (1, 0)):
        model = Telling()
        shared = SharedPass(model, "batch", with_attention=True)
        asks = [lambda: shared.hidden_for("batch"), lambda: shared.attention_reading.read_attention("batch")]  # noqa: B023
        for at in order:
            asks[at]()
        assert model.passes == [("batch", "told")]
        assert shared.read_attention("batch") == (torch.ones(1), ("stack",))


def test_hidden_places_are_read_as_they_were_hidden():
    model = Filling()
    shared = SharedPass(model, "batch", with_attention=True)
    hidden, lengths = shared.infilling.read_hidden("batch with hidden places")
    assert lengths == "lengths"
    assert shared.read_attention("batch")[0] is hidden
    assert shared.read_attention("batch")[1] == ("stack",)
    assert model.passes == [("batch with hidden places", True)]
    quiet = SharedPass(model, "batch", with_attention=False)
    quiet.read_hidden("batch with hidden places")
    assert model.passes[1:] == [("batch with hidden places", False)]


def test_all_else_is_the_model_s():
    shared = SharedPass(Counting(), "batch", with_attention=False)
    assert shared.text == "its own"
    assert shared.attention_reading is None
    assert shared.infilling is None
