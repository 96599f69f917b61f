import pytest
import torch

from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.data.known_languages.made_data import is_for_validation
from unspool.lab.small_models import (
    OPENINGS,
    PASSAGES,
    RNN_LM,
    excess_loss,
    held_out,
    language,
    recipe,
    task,
    train_model,
)


def test_the_same_seed_gives_the_same_model():
    data = language("zipf_markov", 1, 50, word_count=20, order=1)
    told = []
    models = [train_model(data, {**RNN_LM, "width": 8}, 5, seed, losses=told) for seed in (1, 1, 2)]
    one, same, other = (model.head.weight for model in models)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert len(told) == 15
    assert not models[0].training


def test_models_of_the_same_data_share_it_and_are_those_of_fresh_data():
    data = language("zipf_markov", 1, 50, word_count=20, order=1)
    shape = {**RNN_LM, "width": 8}
    fresh, other = train_model(data, shape, 3, 1), train_model({**data, "seed": 2}, shape, 3, 1)
    _, shared = train_model(data, {**shape, "width": 4}, 3, 1), train_model(data, shape, 3, 1)
    assert torch.equal(fresh.head.weight, shared.head.weight)
    assert not torch.equal(fresh.head.weight, other.head.weight)


def test_a_language_may_have_a_seed_of_its_own():
    assert language("zipf_markov", 1, seed=4)["language"]["seed"] == 4


def test_tables_take_the_place_of_those_of_the_recipe():
    made = recipe(
        task("copy", 1), {"kind": "rnn_seq2seq"}, 40, 1, schedule={"kind": "constant"}, train={"clip": 2.0}
    )
    assert made["schedule"] == {"kind": "constant"}
    assert (made["train"]["clip"], made["train"]["updates"]) == (2.0, 40)
    assert made["tokenizer"] == {"kind": "words"}


def test_the_truth_has_no_excess():
    truth = ZipfMarkov(word_count=12, order=1)
    assert excess_loss(TrueModel(truth), truth, 20, 3) == pytest.approx(0.0, abs=1e-5)
    model = train_model(language("zipf_markov", 1, 20, word_count=12, order=1), {**RNN_LM, "width": 8}, 1, 1)
    assert excess_loss(model, truth, 20, 3) > 0.3


def test_held_out_pairs_are_different_and_were_not_learnt_from():
    rows = held_out("copy", 10, 4, symbols=20, shortest=4, longest=4)
    assert len(dict(rows)) == 10
    assert all(len(source.split()) == 4 and source == target for source, target in rows)
    assert all(is_for_validation(source) for source, _ in rows)
    with pytest.raises(ValueError, match=r"only \d+ of 100 held-out pairs of copy"):
        held_out("copy", 100, 2, symbols=20, shortest=2, longest=2)


def test_both_orders_are_asked_the_same_sums():
    forwards, backwards = (held_out("addition", 10, 3, digits=3, right_to_left=it) for it in (False, True))
    assert [source for source, _ in forwards] == [source for source, _ in backwards]
    assert [target for _, target in forwards] == [target[::-1] for _, target in backwards]


def test_texts_are_different_and_can_be_continued():
    assert len(set(OPENINGS)) == 16
    assert all(4 <= len(text.split()) <= 12 and text == text.strip() for text in OPENINGS)
    assert len(set(PASSAGES)) == 8
    assert all(30 <= len(text.split()) <= 60 for text in PASSAGES)
