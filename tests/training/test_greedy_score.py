import json

import pytest
import torch

from unspool.data.batch import Batch
from unspool.tokenization import train_words
from unspool.training import train
from unspool.training.validation import score_function, sources_and_references

TEXT = train_words(["a b c"])


@pytest.fixture
def recipe():
    return {
        "data": {
            "kind": "task",
            "task": {"kind": "copy", "symbols": 3, "longest": 3},
            "train": 200,
            "valid": 20,
        },
        "tokenizer": {"kind": "words"},
        "batches": {"tokens": 64},
        "model": {
            "kind": "transformer_seq2seq",
            **{"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "inner_width": 8},
        },
        "schedule": {"kind": "constant"},
        "train": {"updates": 6, "validate_every": 2, "checkpoint_every": 2, "keep": 9},
    }


def test_scores_by_hand():
    assert score_function("bleu")(["the cat sat on the mat"], ["the cat sat on the mat"]) == pytest.approx(
        100.0
    )
    assert score_function("chrf")(["abc"], ["abc"]) == pytest.approx(100.0)
    assert score_function("chrf")(["xyz"], ["abc"]) == 0.0


def test_sources_lose_their_end_and_references_are_text():
    batch = Batch(
        torch.tensor([[1, 4, 5], [1, 6, 0]]),
        torch.tensor([3, 2]),
        torch.tensor([[4, 5, 2], [6, 2, 0]]),
        torch.ones(2, 3),
        torch.tensor([[5, 4, 2], [6, 2, 0]]),
        torch.tensor([3, 2]),
    )
    assert sources_and_references([batch], 9, TEXT) == ([[5, 4], [6]], ["a b", "c"])
    assert sources_and_references([batch, batch], 1, TEXT) == ([[5, 4]], ["a b"])


def test_the_best_validation_is_the_one_with_the_highest_score(recipe, tmp_path, monkeypatch):
    said = iter([10.0, 30.0, 20.0])
    monkeypatch.setattr("unspool.training.validation.score_function", lambda name: lambda *_: next(said))
    train(recipe, tmp_path / "run", changes=["train.measure=chrf"])
    points = [json.loads(line) for line in (tmp_path / "run" / "curves.jsonl").read_text().splitlines()]
    assert [it["chrf"] for it in points if "chrf" in it] == [10.0, 30.0, 20.0]
    about = json.loads((tmp_path / "run" / "checkpoints" / "00000006" / "checkpoint.json").read_text())
    assert (about["progress"]["best"], about["progress"]["best_update"]) == (30.0, 4)
    best = (tmp_path / "run" / "checkpoints" / "00000004" / "model.safetensors").read_bytes()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == best


def test_patience_ends_by_the_score(recipe, tmp_path, monkeypatch):
    said = iter([5.0, 5.0, 5.0])
    monkeypatch.setattr("unspool.training.validation.score_function", lambda name: lambda *_: next(said))
    train(recipe, tmp_path / "run", changes=["train.measure=bleu", "train.patience=1", "train.updates=60"])
    last = json.loads((tmp_path / "run" / "last.json").read_text())
    assert last == {"checkpoint": "00000004"}


@pytest.mark.parametrize("measure", ["bleu", "chrf"])
def test_a_model_that_fills_places_is_scored_by_what_it_fills_in(recipe, tmp_path, measure):
    masked = {
        **recipe,
        "model": {**recipe["model"], "kind": "masked_seq2seq"},
        "objective": {"kind": "masked"},
    }
    train(masked, tmp_path / "run", changes=[f"train.measure={measure}"])
    points = [json.loads(line) for line in (tmp_path / "run" / "curves.jsonl").read_text().splitlines()]
    assert all(0.0 <= it[measure] <= 100.0 for it in points if "valid" in it)


def test_a_true_score_changes_no_weight(recipe):
    plain = train(recipe, changes=["train.final=last"])
    scored = train(recipe, changes=["train.final=last", "train.measure=bleu"])
    for name, it in plain.state_dict().items():
        assert torch.equal(it, scored.state_dict()[name])


def test_a_model_without_answers_is_refused(recipe):
    lm = {"kind": "transformer_lm", "width": 8, "heads": 2, "layers": 1, "inner_width": 8}
    data = {"kind": "language", "language": {"kind": "zipf_markov", "word_count": 9}, "train": 50, "valid": 5}
    other = {**{key: it for key, it in recipe.items() if key != "tokenizer"}, "data": data, "model": lm}
    with pytest.raises(ValueError, match="needs an encoder–decoder, but this is a TransformerLM"):
        train(other, changes=["train.measure=bleu"])
    with pytest.raises(ValueError, match="needs held-out pairs"):
        train(recipe, changes=["train.measure=bleu", "data.valid=0"])
    with pytest.raises(ValueError, match="did you mean 'bleu'"):
        train(recipe, changes=["train.measure=blue"])
