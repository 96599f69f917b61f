import math

import pytest
import torch

from unspool.data.batch import Batch
from unspool.protocols import Loss
from unspool.training.update import numbers, update


class Rows:
    """The rows of one batch, dealt out as several unequal ones."""

    per_epoch = 100

    carries = False

    def __init__(self, whole, cuts):
        self.parts = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(whole.inputs_NT)], strict=True)]
        self.whole = whole

    def batch(self, number):
        part = self.parts[number % len(self.parts)]
        w = self.whole
        return Batch(w.inputs_NT[part], w.lengths_N[part], w.targets_NU[part], w.weights_NU[part])


def gradients(run):
    seen = {}
    original = run.optimizer.step

    def step(t, lr):
        seen.update({name: it.grad.clone() for name, it in run.optimizer.named.items()})
        original(t, lr)

    run.optimizer.step = step
    done, _ = update(run)
    return done, seen


def test_batches_added_up_are_the_big_batch(tiny):
    whole = tiny().feed.batch(0)
    whole = Batch(*(torch.cat([getattr(it, name) for it in (whole, whole)]) for name in ("inputs_NT", "lengths_N", "targets_NU", "weights_NU")))  # fmt: skip
    big, big_gradient = gradients(tiny(dropout=0.0, feed=Rows(whole, []), clip=0.0))
    small, gradient = gradients(tiny(dropout=0.0, feed=Rows(whole, [1, 4]), clip=0.0, accumulate=3))
    assert small.loss == pytest.approx(big.loss, rel=1e-6)
    assert small.weight == big.weight == whole.weight
    for name, it in big_gradient.items():
        torch.testing.assert_close(gradient[name], it, rtol=1e-5, atol=1e-7)


def test_the_gradient_is_that_of_the_mean_loss(tiny):
    run = tiny(dropout=0.0, clip=0.0)
    batch = run.feed.batch(0)
    model = run.model
    total, _ = model.head.loss(
        model.hidden_for(batch).flatten(0, 1), batch.targets_NU.flatten(), batch.weights_NU.flatten(), 0.1
    )
    expected = torch.autograd.grad(total / batch.weight, list(model.parameters()))
    done, found = gradients(run)
    for it, (name, _) in zip(expected, model.named_parameters(), strict=True):
        torch.testing.assert_close(found[name], it)
    assert done.norm == pytest.approx(math.sqrt(sum(it.square().sum().item() for it in expected)), rel=1e-5)


def test_a_long_gradient_is_clipped_and_a_short_one_is_not(tiny):
    free, unclipped = gradients(tiny(clip=0.0))
    limit = free.norm / 2
    done, clipped = gradients(tiny(clip=limit))
    assert done.norm == pytest.approx(free.norm)
    for name, it in unclipped.items():
        torch.testing.assert_close(clipped[name], it / 2)
    _, left = gradients(tiny(clip=2 * free.norm))
    assert all(torch.equal(left[name], it) for name, it in unclipped.items())


class Team:
    rank, size = 1, 2


def test_the_batches_of_a_team_are_one_sequence(tiny):
    run = tiny(accumulate=4)
    run.progress.update = 5
    assert numbers(run) == [20, 21, 22, 23]
    run.team = Team()
    assert numbers(run) == [21, 23]


def test_the_learning_rate_follows_the_schedule(tiny):
    run = tiny(lr=0.5)
    run.schedule = lambda t, updates: t / updates
    assert [update(run)[0].lr for _ in range(3)] == [0.5 * t / 12 for t in (1, 2, 3)]


def test_batches_without_a_target_are_refused(tiny):
    run = tiny(objective=lambda model, batch, clock: Loss(model.head.weight.sum() * 0.0, 0.0))
    with pytest.raises(ValueError, match=r"update 1: no target of batches \[0\] counts"):
        update(run)


def test_a_batch_begins_where_the_one_that_it_follows_ended(carrying):
    run = carrying(accumulate=2, dropout=0.0)
    seen = []
    original = run.model.hidden_for

    def hidden_for(batch):
        seen.append(batch.begin_NLS)
        return original(batch)

    run.model.hidden_for = hidden_for
    ends = {}
    for _ in range(3):
        update(run)
        ends |= run.carried
    assert seen[0] is seen[1] is None
    for number in (2, 3, 4, 5):
        assert torch.equal(seen[number], ends[number - 2])
    assert sorted(run.carried) == [4, 5]  # no more is kept than is needed


def test_an_epoch_begins_anew(carrying):
    run = carrying(length=30)
    for _ in range(run.feed.per_epoch):
        update(run)
    assert run.batch(run.feed.per_epoch).begin_NLS is None
