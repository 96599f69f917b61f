import json
import math
import warnings
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch

from unspool.objectives import CrossEntropy
from unspool.training.loop import Stopped, training_loop
from unspool.training.run_folder import RunFolder, last_checkpoint


def resume(folder, run):
    folder.restore(run, last_checkpoint(folder.path, run.processes, warnings.warn))


def finish(run, keeper=None):
    return list(training_loop(run, keeper))


def weights(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_model_learns(tiny):
    done = finish(tiny(dropout=0.0, updates=60))
    assert done[-1].valid < 1.0 < done[3].valid
    assert [it.clock.update for it in done] == list(range(1, 61))


def test_the_same_seed_gives_the_same_bits_and_another_one_others(tiny):
    runs = [tiny(seed=seed) for seed in (0, 0, 1)]
    for run in runs:
        finish(run)
    assert equal(weights(runs[0]), weights(runs[1]))
    assert not equal(weights(runs[0]), weights(runs[2]))


@pytest.mark.parametrize("after", [1, 3, 5, 11])
def test_a_resumed_run_is_bit_equal(tiny, write, tmp_path, after):
    tiny = partial(tiny, accumulate=2, final="last")
    whole = tiny()
    expected = finish(whole)
    first = RunFolder(tmp_path)
    run = tiny()
    resume(first, run)
    for done in training_loop(run, first):
        if done.clock.update == after:
            break  # killed: nothing is closed or said
    second = RunFolder(tmp_path)
    run = tiny()
    resume(second, run)
    assert run.progress.update == after - after % 3
    again = list(training_loop(run, second))
    assert equal(weights(whole), weights(run))
    assert [it.loss for it in again] == [it.loss for it in expected[after - after % 3 :]]
    points = [json.loads(line) for line in (tmp_path / "curves.jsonl").read_text().splitlines()]
    assert [it["update"] for it in points if "loss" in it] == list(range(1, 13))


def test_asked_to_stop_it_keeps_what_it_did(tiny, write, tmp_path):
    folder, run = RunFolder(tmp_path), tiny()
    resume(folder, run)
    updates = training_loop(run, folder, is_stopping=lambda: run.progress.update >= 4)
    assert [next(updates).saved for _ in range(5)][-1] == "00000005"
    with pytest.raises(Stopped, match="after update 5 of 12"):
        next(updates)
    run = tiny()
    resume(RunFolder(tmp_path), run)
    assert run.progress.update == 5


def test_patience_ends_a_run_that_gets_no_better(tiny):
    run = tiny(dropout=0.0, lr=1e-12, updates=100, validate_every=2, patience=3)
    run.progress.best = 0.0  # nothing is better than certainty
    done = finish(run)
    assert len(done) == 6
    assert run.over


def test_early_updates_are_averaged_into_points(tiny, write, tmp_path):
    folder, run = RunFolder(tmp_path), tiny(log_every=5, valid=False)
    resume(folder, run)
    done = finish(run, folder)
    points = [json.loads(line) for line in (tmp_path / "curves.jsonl").read_text().splitlines()]
    assert [it["update"] for it in points] == [5, 10, 12]
    total = sum(it.nll * it.weight for it in done[:5]) / sum(it.weight for it in done[:5])
    assert math.isclose(points[0]["nll"], total)


@dataclass(frozen=True)
class Telling(CrossEntropy):
    """An objective without a likelihood."""

    def __call__(self, model, batch, clock):
        found = super().__call__(model, batch, clock)
        return replace(found, stats={"seven": 7.0 * found.weight})


def test_a_run_without_a_likelihood_is_kept_between_two_points_of_its_curves(tiny, write, tmp_path):
    run = tiny(objective=Telling(), log_every=10, valid=False)
    folder = RunFolder(tmp_path)
    resume(folder, run)
    with pytest.raises(Stopped, match="after update 4 of 12"):
        list(training_loop(run, folder, is_stopping=lambda: run.progress.update >= 3))
    again = tiny(objective=Telling(), log_every=10, valid=False)
    resume(RunFolder(tmp_path), again)
    assert again.progress == run.progress
    assert "nll" not in finish_points(again, tmp_path)[-1]


def finish_points(run, path):
    folder = RunFolder(path)
    resume(folder, run)
    list(training_loop(run, folder))
    return [json.loads(line) for line in (path / "curves.jsonl").read_text().splitlines()]


def test_what_an_objective_says_besides_is_a_mean_over_targets_in_the_curves(tiny, write, tmp_path):
    points = []

    class Keeper:
        def add_point(self, point):
            points.append(point)

        def checkpoint(self, run, *, regular):
            return None

    list(training_loop(tiny(objective=Telling(), accumulate=2, log_every=4, valid=False), Keeper()))
    assert [point["seven"] for point in points] == pytest.approx([7.0] * 3)
    assert all("nll" not in point for point in points)  # nobody has said it
