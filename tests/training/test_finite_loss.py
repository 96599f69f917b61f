import pytest
import torch

from unspool.interfaces import Loss, Objective
from unspool.objectives import CrossEntropy
from unspool.training import Diverged
from unspool.training.update import apply_update


def weights(run):
    return {name: it.clone() for name, it in run.weights().items()}


def unchanged(run, before):
    return all(torch.equal(it, before[name]) for name, it in run.weights().items())


def stop(run):
    before = weights(run)
    with pytest.raises(Diverged) as caught:
        apply_update(run)
    assert unchanged(run, before)
    assert run.progress.update == 0
    assert run.optimizer.gradients() == []
    assert not any(m._forward_hooks for m in run.model.modules())
    return str(caught.value)


def test_the_first_layer_that_overflows_is_named(tiny):
    run = tiny(accumulate=2)
    original = run.model.layers[1].forward
    run.model.layers[1].forward = lambda x: original(x) * torch.inf
    text = stop(run)
    assert "update 1: the gradient is nan" in text  # tanh keeps the loss finite
    assert "in batch 0 the output of layer 'layers.1' is the first that is not finite" in text
    assert "train.lr" in text


class OnlyBatch:
    """A feed whose batch 1 asks for a row that was spoilt."""

    per_epoch = 7

    def __init__(self, feed):
        self.feed = feed

    def batch(self, number):
        batch = self.feed.batch(number)
        batch.inputs_NT[batch.inputs_NT == 7] = 1
        if number == 1:
            batch.inputs_NT[0, 0] = 7
        return batch


def test_the_batch_is_named(tiny):
    run = tiny(accumulate=3)
    run.feed = OnlyBatch(run.feed)
    with torch.no_grad():
        run.model.embed.weight[7] = torch.inf
    run.model.embed.weight.requires_grad_(False)
    text = stop(run)
    assert "before batch 1 the weights of 'embed.weight' were not finite already" in text


class Explode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.nan


def test_a_gradient_that_is_not_finite_is_traced_to_its_layer(tiny):
    run = tiny(dropout=0.0)
    original = run.model.layers[0].forward
    run.model.layers[0].forward = lambda x: original(Explode.apply(x))
    text = stop(run)
    assert "the gradient is nan" in text
    assert "in batch 0 the gradient of 'embed.weight' is the first that is not finite" in text


def test_a_loss_that_overflows_after_the_layers(tiny):
    class Overflow(Objective):
        def __call__(self, model, batch, clock):
            loss = CrossEntropy()(model, batch, clock)
            return Loss(loss.total * torch.inf, loss.weight, loss.stats)

    text = stop(tiny(objective=Overflow()))
    assert "the loss is inf" in text
    assert "every layer is finite, but not the loss" in text


def test_a_sum_that_overflows_by_itself(tiny):
    class Huge(Objective):
        def __call__(self, model, batch, clock):
            loss = CrossEntropy()(model, batch, clock)
            return Loss(loss.total * 1e30, loss.weight * 1e-30, loss.stats)

    text = stop(tiny(objective=Huge()))
    assert "the gradient is inf" in text
    assert "all layers are finite in each of the batches [0]" in text
