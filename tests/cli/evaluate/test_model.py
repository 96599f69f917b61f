import json
from math import log

import pytest


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcab")
    return path


def test_by_hand(unspool, loaded, text):
    status, out, err = unspool("evaluate", "model", "tiny", "--text", text, "--json", "--bins", 10)
    assert (status, err) == (0, "")
    found = json.loads(out)
    # a → b → c → a → b: 0.7 each time, always the most probable
    assert found["perplexity"] == pytest.approx(1 / 0.7)
    assert found["bits_per_byte"] == pytest.approx(-4 * log(0.7) / log(2) / 5)
    assert found["calibration"]["ece"] == pytest.approx(0.3)
    assert found["tokens"] == 4


def test_in_words_and_drawn(unspool, loaded, text, tmp_path):
    status, out, err = unspool("evaluate", "model", "tiny", "--text", text, "--figure", tmp_path / "r.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'r.svg'}\n")
    assert out.startswith("perplexity     1.429   of 4 tokens in 1 texts\n")
    assert "ECE            0.3000" in out


def test_an_encoder_decoder_reads_pairs(unspool, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"source": "the 5th of May, 1921", "target": "1921-05-05"}) + "\n")
    status, out, _ = unspool("evaluate", "model", "dates", "--text", path, "--json")
    assert status == 0
    assert json.loads(out)["perplexity"] < 1.5
    (tmp_path / "plain.txt").write_text("1921-05-05")
    status, _, err = unspool("evaluate", "model", "dates", "--text", tmp_path / "plain.txt")
    assert status == 2
    assert "an encoder–decoder is measured on pairs" in err


@pytest.mark.parametrize(("content", "said"), [("", "the file contains no text"), ("a", "needs at least 2")])
def test_too_little_to_read(unspool, loaded, tmp_path, content, said):
    (tmp_path / "x.txt").write_text(content)
    status, _, err = unspool(
        "evaluate", "model", "tiny", "--text", tmp_path / "x.txt", "--figure", tmp_path / "f.svg"
    )
    assert status == 2
    assert said in err
    assert not (tmp_path / "f.svg").exists()


def test_a_run_is_measured_on_the_tsv_that_it_was_trained_on(unspool, tmp_path):
    """Columns 2 and 4, in a file that is not even called .tsv."""
    file = tmp_path / "pairs.txt"
    file.write_text(
        "".join(f"{n}\t{word}\t{n}\t{word[::-1]}\n" for n, word in enumerate(["ab", "bcd", "dca", "cab"] * 4))
    )
    (tmp_path / "recipe.toml").write_text(RUN.format(file=file))
    status, _, err = unspool("train", tmp_path / "recipe.toml", "--output", tmp_path / "run")
    assert status == 0, err
    status, out, err = unspool("evaluate", "model", tmp_path / "run", "--text", file, "--json")
    assert status == 0, err
    assert json.loads(out)["texts"] == 16
    for command in ("beams", "loops"):
        argv = ("diagnose", command, tmp_path / "run", "--text", file, "--texts", 3, "--json")
        status, _, err = unspool(*argv)
        assert status == 0, err


RUN = """
seed = 1
[data]
kind = "tsv"
train = "{file}"
source = 2
target = 4
[tokenizer]
kind = "characters"
[batches]
kind = "bucketed"
tokens = 64
[model]
kind = "transformer_seq2seq"
width = 8
heads = 2
encoder_layers = 1
decoder_layers = 1
inner_width = 8
[train]
updates = 2
lr = 1e-3
"""
