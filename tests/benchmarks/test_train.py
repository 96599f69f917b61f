"""The loop that is measured is the real one, on batches that it takes."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def train():
    path = Path(__file__).resolve().parents[2] / "benchmarks/train.py"
    spec = importlib.util.spec_from_file_location("benchmarks_train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_shapes_make_updates(train):
    for shape in (train.GPT2, train.LLAMA):
        run = train.ours(shape, train.TrainSettings(updates=2))
        assert len(list(train.training_loop(run))) == 2


def test_a_feed_gives_every_batch_again(train):
    feed = train.RandomFeed()
    first, again = feed.batch(3), feed.batch(3 + feed.per_epoch)
    assert first.inputs_NT.equal(again.inputs_NT)
    assert first.inputs_NT.shape == first.targets_NU.shape == (train.ROWS, train.LENGTH)
