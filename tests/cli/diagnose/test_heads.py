import json

import pytest

import unspool as us
from unspool.models.transformer_lm import TransformerConfig
from unspool.tokenization.vocabulary import train_characters

ROW = "# text = ab c\n1\tab\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\tc\t_\t_\t_\t_\t0\troot\t_\t_\n\n"


@pytest.fixture
def bank(tmp_path):
    (tmp_path / "bank.conllu").write_text(ROW * 12)
    return tmp_path / "bank.conllu"


@pytest.fixture
def model(tmp_path):
    text = train_characters(["ab c"])
    shape = {"width": 8, "heads": 2, "inner_width": 8, "layers": 1}
    us.save(TransformerConfig(vocab_size=text.vocab_size, **shape).build(text), tmp_path / "model")
    return tmp_path / "model"


def test_the_best_heads_are_told_and_drawn(unspool, model, bank, tmp_path):
    status, out, err = unspool("diagnose", "heads", model, bank, "-o", tmp_path / "heads.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'heads.svg'}\n")
    assert out.splitlines()[0].split() == [
        "label",
        "arcs",
        "best",
        "head",
        "finds",
        "best",
        "offset",
        "finds",
    ]
    assert out.splitlines()[1].split()[:2] == ["nsubj", "12"]
    found = json.loads(unspool("diagnose", "heads", model, bank, "--json", "--sentences", "6")[1])
    assert (found["label"], found["arcs"], found["offset"]) == ("nsubj", 6, 1)


def test_a_treebank_whose_words_do_not_match_is_one_line(unspool, model, bank, tmp_path):
    bank.write_text(ROW.replace("1\tab", "1\tabc"))
    status, out, err = unspool("diagnose", "heads", model, bank, "-o", tmp_path / "heads.svg")
    assert status != 0
    assert out == ""
    assert err.count("\n") == 1
    assert "does not stand in the sentence's text" in err
    assert not (tmp_path / "heads.svg").exists()
