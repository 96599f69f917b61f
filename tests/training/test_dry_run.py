import json

import pytest

from unspool.cli import main
from unspool.training.dry_run import dry_run

RECIPE = """
[data]
kind = "task"
task = {kind = "copy", symbols = 4, longest = 4}
train = 200
valid = 20
[tokenizer]
kind = "words"
[batches]
tokens = 64
[model]
kind = "transformer_seq2seq"
width = 8
heads = 2
encoder_layers = 1
decoder_layers = 1
inner_width = 8
[train]
updates = 40
accumulate = 2
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return path


def test_it_counts_by_hand(recipe, tmp_path):
    found = dry_run(recipe)
    # 8 tokens (4 symbols, 4 special ones) · 8; encoder: 4·64 + 3·64 + 2 norms of 8, last norm 8;
    # decoder: two attentions, 3 norms, last norm
    expected = 64 + (256 + 192 + 16 + 8) + (256 + 256 + 192 + 24 + 8)
    assert found.weights == found.learning == expected
    assert found.data["train_examples"] == 200
    assert found.data["valid_examples"] == 20
    assert all(rows * columns <= 64 for rows, columns in found.batches)
    assert found.bytes > 4 * 4 * expected
    assert found.seconds > 0
    assert found.updates == 40
    assert [it.name for it in tmp_path.iterdir()] == ["recipe.toml"]


def test_more_updates_take_longer_and_recomputing_takes_less_memory(recipe):
    layers = ["model.encoder_layers=4", "model.decoder_layers=4"]
    plain, again = (dry_run(recipe, [*layers, *more]) for more in ([], ["train.recompute=true"]))
    assert again.bytes < plain.bytes
    assert dry_run(recipe, ["train.updates=40000"]).seconds > 20 * plain.seconds


def test_what_begins_later_is_tried_too(recipe):
    late = (
        'auxiliary=[{kind="attention_near", begin=30}, {kind="reinforce", reward="builtins:print", begin=39}]'
    )
    layers = ["model.encoder_layers=2", "model.decoder_layers=2"]
    with pytest.raises(ValueError, match="the reward 'builtins:print' is None, but must be a finite number"):
        dry_run(recipe, [*layers, late], trust_code=True)


def test_the_command_says_it_and_writes_nothing(recipe, tmp_path, capsys):
    assert main(["train", str(recipe), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "train examples: 200\n" in said
    assert "TransformerSeq2Seq, 1,272 weights, of which 1,272 are trained" in said
    assert "memory: about" in said
    assert "for 40 updates" in said
    assert main(["train", str(recipe), "--dry-run", "--json", "--set", "train.patience=3"]) == 0
    assert json.loads(capsys.readouterr().out)["updates"] == 40
    assert [it.name for it in tmp_path.iterdir()] == ["recipe.toml"]


def test_a_dry_run_reports_the_errors_of_a_run(recipe, capsys):
    assert main(["train", str(recipe), "--dry-run", "--set", "model.kind=transformer_lm"]) != 0
    assert "encoder_layers" in capsys.readouterr().err
    assert main(["train", "--dry-run"]) != 0
    assert "no recipe: unspool train recipe.toml --dry-run" in capsys.readouterr().err
