import pytest
import torch

from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.small_models import RNN_LM, excess_loss, language, recipe, task, train_model


def test_the_same_seed_gives_the_same_model():
    data = language("zipf_markov", 1, 50, word_count=20, order=1)
    told = []
    models = [train_model(data, {**RNN_LM, "width": 8}, 5, seed, losses=told) for seed in (1, 1, 2)]
    one, same, other = (model.head.weight for model in models)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert len(told) == 15
    assert not models[0].training


def test_a_language_may_have_a_seed_of_its_own():
    assert language("zipf_markov", 1, seed=4)["language"]["seed"] == 4


def test_tables_take_the_place_of_those_of_the_recipe():
    made = recipe(
        task("copy", 1), {"kind": "rnn_seq2seq"}, 40, 1, schedule={"kind": "constant"}, train={"clip": 2.0}
    )
    assert made["schedule"] == {"kind": "constant"}
    assert (made["train"]["clip"], made["train"]["updates"]) == (2.0, 40)
    assert made["text"] == {"kind": "words"}


def test_the_truth_has_no_excess():
    truth = ZipfMarkov(word_count=12, order=1)
    assert excess_loss(TrueModel(truth), truth, 20, 3) == pytest.approx(0.0, abs=1e-5)
    model = train_model(language("zipf_markov", 1, 20, word_count=12, order=1), {**RNN_LM, "width": 8}, 1, 1)
    assert excess_loss(model, truth, 20, 3) > 0.3
