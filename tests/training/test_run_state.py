import json

import pytest
import torch

from unspool.config import build, to_dict
from unspool.training.loop import training_loop
from unspool.training.run_state import LogWindow, Progress


def test_progress_is_json_and_back():
    for progress in (Progress(), Progress(7, 1 / 3, 5, 2, 1e6, 0.1, LogWindow(0.1, 0.2, 3.0, 4))):
        assert build(Progress, json.loads(json.dumps(to_dict(progress), allow_nan=False)), "") == progress


def test_what_is_kept_is_restored_to_the_bit(tiny):
    first, second = tiny(), tiny(seed=5)
    updates = training_loop(first)
    for _ in range(5):
        next(updates)
    second.restore(first.weights(), first.training_state(), build(Progress, to_dict(first.progress), ""))
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
