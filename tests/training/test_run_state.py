import json
import math

import pytest
import torch

from unspool.training.loop import training_loop
from unspool.training.run_state import LogWindow, Progress


def test_progress_is_json_and_back():
    for progress in (Progress(), Progress(7, 1 / 3, 5, 2, 1e6, 0.1, LogWindow(0.1, 0.2, 3.0, 4))):
        assert Progress.from_json(json.loads(json.dumps(progress.to_json(), allow_nan=False))) == progress
    assert Progress().best == math.inf


def test_what_is_kept_is_restored_to_the_bit(tiny):
    first, second = tiny(), tiny(seed=5)
    updates = training_loop(first)
    for _ in range(5):
        next(updates)
    second.restore(first.weights(), first.training_state(), Progress.from_json(first.progress.to_json()))
    assert second.progress == first.progress
    for name, it in first.weights().items():
        assert torch.equal(second.weights()[name], it)
    for name, it in first.training_state().items():
        assert torch.equal(second.training_state()[name], it)


class Counter:
    def __init__(self):
        self.count = torch.zeros(1)

    def __call__(self, model, optimizer, batch, clock):
        self.count += clock.update

    def state(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"].clone()


def test_hooks_are_called_after_each_update_and_kept(tiny):
    first, second = tiny(), tiny()
    first.hooks, second.hooks = [Counter(), Counter()], [Counter(), Counter()]
    updates = training_loop(first)
    for _ in range(3):
        next(updates)
    assert first.hooks[0].count.item() == 1 + 2 + 3
    second.restore(first.weights(), first.training_state(), first.progress)
    assert second.hooks[1].count.item() == 6


def test_the_clock_counts_batches_and_epochs(tiny):
    run = tiny(accumulate=2)
    run.progress.update = 7
    assert (run.clock.update, run.clock.batches, run.clock.epoch) == (7, 14, 2.0)


def test_a_run_is_over_by_updates_or_patience(tiny):
    run = tiny(updates=5, patience=2)
    assert not run.over
    run.progress.stalled = 2
    assert run.over
    run.progress.stalled, run.progress.update = 0, 5
    assert run.over


class Two:
    rank, size = 0, 2


def test_batches_that_cannot_be_shared_out_are_refused(tiny):
    from unspool.objectives import CrossEntropy
    from unspool.training.run_state import Run
    from unspool.training.settings import TrainSettings

    run = tiny()
    with pytest.raises(ValueError, match=r"train.accumulate=3 .* multiple of 2"):
        Run(run.model, CrossEntropy(), run.feed, TrainSettings(updates=1, accumulate=3), processes=Two())


def test_weights_of_another_model_are_refused_in_words(tiny):
    run = tiny()
    with pytest.raises(ValueError, match=r"'norm.bias' is \(9,\) in it, but \(8,\) in this one"):
        run.set_weights({**run.weights(), "norm.bias": torch.zeros(9)})
    weights = run.weights()
    del weights["norm.bias"]
    with pytest.raises(ValueError, match=r"'norm\.bias' is not there in it"):
        run.set_weights(weights)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_what_a_model_carries_is_kept_and_restored_to_the_bit(carrying, accumulate):
    whole, first = carrying(accumulate=accumulate), carrying(accumulate=accumulate)
    expected = [done.loss for done in training_loop(whole)]
    updates = training_loop(first)
    losses = [next(updates).loss for _ in range(5)]
    second = carrying(accumulate=accumulate, seed=9)
    second.seed, second.feed = first.seed, first.feed
    second.restore(first.weights(), first.training_state(), Progress.from_json(first.progress.to_json()))
    assert sorted(second.carried) == sorted(first.carried) == [*range(4 * accumulate, 5 * accumulate)]
    for number, it in first.carried.items():
        assert torch.equal(second.carried[number], it)
    assert [*losses, *(done.loss for done in training_loop(second))] == expected
    for name, it in whole.weights().items():
        assert torch.equal(second.weights()[name], it)


def test_without_what_was_carried_a_run_goes_on_otherwise(carrying):
    """So that the test above means something."""
    first, second = carrying(), carrying()
    updates = training_loop(first)
    for _ in range(5):
        next(updates)
    memory = {name: it for name, it in first.training_state().items() if name != "carried"}
    second.restore(first.weights(), memory, Progress.from_json(first.progress.to_json()))
    second.carried = {4: torch.zeros_like(first.carried[4])}
    assert next(training_loop(second)).loss != next(updates).loss


class Half:
    """One of two processes; `other` is what the other one has."""

    size = 2

    def __init__(self, rank, other=None):
        self.rank, self.other = rank, other

    def all_gather(self, tensor):
        return [tensor, self.other] if self.rank == 0 else [self.other, tensor]

    def full_tensor(self, tensor):
        return tensor

    def shard_like(self, full, like):
        return full


def test_what_is_carried_is_shared_out_among_any_number_of_processes(carrying):
    alone = carrying(accumulate=4)
    next(training_loop(alone))
    kept = alone.training_state()["carried"]
    halves = []
    for rank in (0, 1):
        run = carrying(accumulate=4)
        run.processes = Half(rank)
        run.restore(alone.weights(), alone.training_state(), Progress.from_json(alone.progress.to_json()))
        assert sorted(run.carried) == [rank, rank + 2]
        halves.append(run)
    for rank, run in enumerate(halves):
        other = halves[1 - rank].carried
        run.processes.other = torch.stack([other[number] for number in sorted(other)])
        assert torch.equal(run.training_state()["carried"], kept)


def test_a_model_that_carries_nothing_is_refused(tiny, carrying):
    with pytest.raises(
        ValueError, match=r"batches\.carry needs a model with a hidden state, but this is a TinyModel"
    ):
        tiny(feed=carrying().feed)
