"""One line of a recipe, and a model says the last token first: its text comes back the right way round."""

import pytest

import unspool as us
from unspool.data import prepare
from unspool.data.batches import Bucketed
from unspool.data.line_formats import LabelledLines
from unspool.tokenization import Words


def recipe(tokenizer, model, data):
    return {
        "data": data,
        "tokenizer": {"right_to_left": True, **tokenizer},
        "batches": {"tokens": 256},
        "model": {"width": 32, "heads": 2, "inner_width": 32, **model},
        "schedule": {"kind": "constant", "warmup": 5},
        "train": {"updates": 120, "lr": 0.01},
    }


def test_an_encoder_decoder(tmp_path):
    data = {"kind": "task", "task": {"kind": "copy", "symbols": 4, "longest": 4}, "train": 500, "valid": 0}
    shape = {"kind": "transformer_seq2seq", "encoder_layers": 1, "decoder_layers": 1}
    us.train(recipe({"kind": "words"}, shape, data), tmp_path / "run")
    model = us.load(tmp_path / "run")
    symbols = model.tokenizer.source_tokenizer.decode([4, 5, 6])
    out = us.generate(model, symbols, us.Greedy(), max_new_tokens=8)
    assert out.text == symbols
    assert out.tokens == (6, 5, 4, 2)
    pieces = list(us.stream(model, symbols, us.Greedy(), max_new_tokens=8))
    assert "".join(piece.text for piece in pieces) == symbols
    assert model.source_tokenizer.encode(symbols) == [4, 5, 6]
    (best, *_) = us.generate(model, symbols, us.Beam(2), n=2, max_new_tokens=8)
    assert best.text == symbols


def test_a_language_model_is_given_the_end_and_says_what_stands_before_it(tmp_path):
    (tmp_path / "text.txt").write_text(
        "\n".join(["the cat sat on the mat .", "a dog ran to my house ."] * 20)
    )
    data = {"kind": "lines", "train": str(tmp_path / "text.txt")}
    shape = {"kind": "transformer_lm", "layers": 1}
    model = us.train(
        recipe({"kind": "bpe", "vocab_size": 280, "dropout": 0.05}, shape, data), tmp_path / "run"
    )
    out = us.generate(model, " house .", us.Greedy(), max_new_tokens=40)
    assert (out.text, out.finish_reason) == ("a dog ran to my", "eos")


def test_labels_have_no_order(tmp_path):
    (tmp_path / "x.tsv").write_text("good\tfine day\nbad\tawful day\n")
    with pytest.raises(ValueError, match=r"tokenizer\.right_to_left does not work with labelled data"):
        prepare(LabelledLines(train=str(tmp_path / "x.tsv")), Words(right_to_left=True), Bucketed())
