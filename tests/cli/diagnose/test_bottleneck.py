import json
import math
import re

import pytest
import torch

import unspool as us
from unspool.testing import bigram


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcabcaabbccacb")
    return path


def test_the_rank_is_reported(unspool, loaded, text):
    status, out, err = unspool("diagnose", "bottleneck", "tiny", "--text", text)
    assert (status, err) == (0, "")
    assert loaded == [("tiny", "cpu")]
    assert "rank of log p        3 (no single output matrix: any rank)" in out
    assert "at most δ = 3.00 nats anywhere (1.39 if uniform)" in out
    assert "at most 1 − e^(−δ) = 0.950" in out


def test_repeated_contexts_are_reported(unspool, loaded, text):
    # fourteen places, but three letters: a bigram says three different things
    out = unspool("diagnose", "bottleneck", "tiny", "--text", text)[1]
    assert out.startswith("contexts             14 (3 different) of 4 words")
    assert "too few different contexts to tell" in out


def test_json_by_hand(unspool, loaded, text):
    argv = ("diagnose", "bottleneck", "tiny", "--text", text, "--contexts", "2", "--json")
    found = json.loads(unspool(*argv)[1])
    assert (found["contexts"], found["vocab_size"], found["rank"], found["limit"]) == (2, 4, 2, None)
    assert found["conclusive"] is False
    assert len(found["singular_values"]) == 2
    assert found["tau"] == pytest.approx(0.95)


@pytest.mark.parametrize("words", [(), ("--text", "ab.txt")])
def test_one_context_is_enough(unspool, loaded, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ab.txt").write_text("ab")
    status, out, err = unspool(
        "diagnose", "bottleneck", "tiny", *words, "--contexts", "1", "--figure", "one.svg"
    )
    assert (status, err) == (0, "unspool: wrote one.svg\n")
    assert out.startswith("contexts             1 of 4 words, in ")
    assert re.search(r"singular values      1: [\d.]+\n", out)


def test_a_matrix_of_one_column_is_shown(unspool, loaded, monkeypatch, text):
    model = us.load("tiny")
    monkeypatch.setattr(type(model), "output_matrix", torch.ones(4, 1))
    monkeypatch.setattr(us, "load", lambda name, **where: model)
    out = unspool("diagnose", "bottleneck", "tiny", "--text", text)[1]
    assert "… of the matrix      1: 2\n" in out


def test_a_threshold_next_to_one_is_told_by_what_it_lacks(unspool, loaded, monkeypatch, text):
    model = bigram([[1 - 3e-6, 1e-6, 1e-6, 1e-6]] * 4, tokenizer=us.load("tiny").tokenizer)
    monkeypatch.setattr(us, "load", lambda name, **where: model)
    assert "1 − e^(−δ) = 1 − 1e-06" in unspool("diagnose", "bottleneck", "tiny", "--text", text)[1]


def test_a_run_of_a_known_language_is_set_beside_its_truth(unspool, tmp_path):
    recipe = {
        "data": {
            "kind": "language",
            "language": {"kind": "senses", "word_count": 40},
            "train": 50,
            "valid": 9,
        },
        "batches": {"kind": "bucketed", "tokens": 256},
        "model": {"kind": "rnn_lm", "width": 4, "head": {"kind": "softmax", "bias": True}},
        "schedule": {"kind": "constant"},
        "train": {"updates": 2, "threads": 1},
    }
    us.train(recipe, out=tmp_path / "run")
    argv = ("diagnose", "bottleneck", tmp_path / "run")
    status, out, err = unspool(*argv, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["contexts"], found["limit"], found["texts"]) == (4 + 2 + 64, 6, "sentences of its language")
    assert found["rank"] <= 6
    truth = found["truth"]
    assert 1 < truth["least"] <= truth["reached"]
    assert truth["rank"] > 6
    assert 0 < truth["delta"] <= found["delta"]
    assert truth["tau"] == pytest.approx(-math.expm1(-truth["delta"]))
    assert 0 < truth["overestimation"] <= truth["tau"] <= found["tau"]
    lines = unspool(*argv)[1].splitlines()
    assert "rank of log p" in lines[1]
    assert "(at most D + 2 = 6)" in lines[1]
    error = f"{truth['reached']:.4g}; every matrix of rank 6 has at least {truth['least']:.4g}"
    assert f"error of log p       {error}" in lines
    assert f"true log p           rank {truth['rank']}, with a share s = 1e-06 of the uniform one" in lines
    assert any(
        line.startswith(f"underestimation      δ = {truth['delta']:.2f} nats measured") for line in lines
    )


def test_no_truth_is_told_where_none_is_known(unspool, loaded, text):
    found = json.loads(unspool("diagnose", "bottleneck", "tiny", "--text", text, "--json")[1])
    assert (found["truth"], found["texts"]) == (None, str(text))
    assert "true log p" not in unspool("diagnose", "bottleneck", "tiny", "--text", text)[1]


def test_a_text_that_is_not_there_fails_before_the_work(unspool, loaded, tmp_path):
    status, out, err = unspool("diagnose", "bottleneck", "tiny", "--text", tmp_path / "no.txt")
    assert (status, out, loaded) == (2, "", [])
    assert "no.txt" in err


def test_an_encoder_decoder_needs_no_text_and_refuses_one_without_sources(unspool, text):
    status, out, err = unspool("diagnose", "bottleneck", "dates")
    assert (status, err) == (0, "")
    assert "in its answers to random words" in out
    status, out, err = unspool("diagnose", "bottleneck", "dates", "--text", text)
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {text}:1: an encoder–decoder is measured on pairs")


def test_errors_name_the_file(unspool, loaded, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("a")
    status, out, err = unspool("diagnose", "bottleneck", "tiny", "--text", short)
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {short}: text 0 has 1 tokens")
    short.write_text("")
    assert unspool("diagnose", "bottleneck", "tiny", "--text", short)[2].count(str(short)) == 1


def test_without_a_text_the_model_speaks_for_itself(unspool, loaded):
    argv = ("diagnose", "bottleneck", "tiny", "--contexts", "40", "--json")
    status, out, err = unspool(*argv)
    assert (status, err) == (0, "")
    assert json.loads(out)["contexts"] == 40
    assert unspool(*argv)[1] == out
    assert unspool(*argv, "--seed", "1")[1] != out


def test_a_picture_is_drawn(unspool, loaded, text, tmp_path):
    path = tmp_path / "spectrum.svg"
    status, out, err = unspool("diagnose", "bottleneck", "tiny", "--text", text, "--figure", path)
    assert (status, err) == (0, f"unspool: wrote {path}\n")
    assert "rank of log p" in out
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    ("name", "said"), [("a.txt", "unknown figure format"), ("no/a.svg", "there is no folder")]
)
def test_a_picture_that_cannot_be_written_fails_before_the_work(unspool, loaded, text, tmp_path, name, said):
    status, out, err = unspool("diagnose", "bottleneck", "tiny", "--text", text, "--figure", tmp_path / name)
    assert (status, out, loaded) == (2, "", [])
    assert said in err


def test_a_head_wider_than_the_vocabulary_has_no_bottleneck(unspool, loaded, monkeypatch, text):
    model = us.load("tiny")
    monkeypatch.setattr(type(model), "output_matrix", torch.ones(4, 5))
    monkeypatch.setattr(us, "load", lambda name, **where: model)
    out = unspool("diagnose", "bottleneck", "tiny", "--text", text)[1]
    assert "at most D + 1 = 6" in out
    assert "no bottleneck" in out
    assert "too few contexts" not in out
