"""KerBS in training: senses go where the language has them, and a stopped run goes on as if nothing had been."""

import numpy as np
import pytest
import torch

from unspool.data.known_languages import SenseChain
from unspool.training import train
from unspool.training.hooks import Reallocation

WORDS = 60


def recipe(seed, updates, every=20, **settings):
    """A language of its own for every seed; no [tokenizer], so that token ids are the language's."""
    return {
        "seed": seed,
        "data": {
            "kind": "language",
            "language": {"kind": "senses", "word_count": WORDS, "seed": seed},
            **{"train": 4000, "valid": 50, "seed": seed},
        },
        "batches": {"kind": "bucketed", "tokens": 1024},
        "model": {"kind": "rnn_lm", "width": 24, "head": {"kind": "kerbs", "senses": 2.0}},
        "schedule": {"kind": "cosine", "warmup": 30},
        # With few words and updates, senses have to move oftener than they do by default.
        "hooks": [{"kind": "kerbs_reallocate", "every": every, "share": 0.1, "rate": 0.05}],
        "train": {
            **{"updates": updates, "lr": 1e-2, "threads": 1, "final": "last"},
            **{"validate_every": updates, "checkpoint_every": updates, **settings},
        },
    }


def numbers_of_senses(seed, model):
    """Of every word: in truth, and in the model's head."""
    language = SenseChain(word_count=WORDS, seed=seed)
    assert [model.tokenizer.decode([token]) for token in (4, 63)] == [language.words[4], language.words[63]]
    true = np.bincount(language.forms, minlength=language.vocab_size)[4:]
    learnt = torch.bincount(model.head.words_S, minlength=language.vocab_size).numpy()
    assert learnt.sum() == 2 * language.vocab_size
    assert learnt.min() >= 1
    return true, learnt[4:]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_words_of_four_senses_get_more_than_the_median_word(seed):
    true, learnt = numbers_of_senses(seed, train(recipe(seed, 300)))
    assert np.median(learnt[true == 4]) > np.median(learnt)
    assert (learnt[true == 4] > np.median(learnt)).mean() >= 0.75
    assert learnt[true == 4].mean() > learnt[true == 1].mean() + 1.5


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path, monkeypatch):
    settings = recipe(0, 30, every=4, checkpoint_every=5)
    train(settings, tmp_path / "whole")
    moved = Reallocation.__call__

    def stop(self, model, optimizer, batch, clock):
        moved(self, model, optimizer, batch, clock)
        if clock.update == 18:
            raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Reallocation, "__call__", stop)
        with pytest.raises(RuntimeError, match="the power is gone"):
            train(settings, tmp_path / "stopped")
    model = train(settings, tmp_path / "stopped", resume=True)
    for file in ("model.safetensors", "checkpoints/00000030/memory.safetensors"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert torch.bincount(model.head.words_S).max() > 2
