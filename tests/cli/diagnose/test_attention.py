import json

import pytest

import unspool as us
from unspool.models.transformer_lm import TransformerConfig
from unspool.tokenization.vocabulary import train_characters


def test_a_language_model_in_words_and_drawn(unspool, tmp_path):
    argv = ("diagnose", "attention", "bible", "In the beginning God created")
    status, out, err = unspool(*argv, "--figure", tmp_path / "a.png", "--layer", 1, "--head", 0)
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'a.png'}\n")
    assert "heads attend: " in out.splitlines()[-1]
    found = json.loads(unspool(*argv, "--json")[1])
    assert len(found["maps"][0]["weights"]) == len(found["tokens"])


def test_an_answer_and_its_source(unspool):
    status, out, _ = unspool(
        "diagnose", "attention", "dates", "1921-05-05", "--source", "the 5th of May, 1921"
    )
    assert status == 0
    assert "of their attention" in out


def test_a_model_without_attention_is_refused(unspool, loaded, narrow):
    status, _, err = unspool("diagnose", "attention", "tiny", "abcabc")
    assert status == 2
    assert "does not provide attention" in err


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
    status, out, err = unspool("diagnose", "heads", model, bank, "--figure", tmp_path / "heads.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'heads.svg'}\n")
    assert "best head" in out
    assert any(line.split()[:2] == ["nsubj", "12"] for line in out.splitlines())
    found = json.loads(unspool("diagnose", "heads", model, bank, "--json", "--sentences", "6")[1])
    assert (found["label"], found["arcs"], found["offset"]) == ("nsubj", 6, 1)


def test_a_treebank_whose_words_do_not_match_is_one_line(unspool, model, bank, tmp_path):
    bank.write_text(ROW.replace("1\tab", "1\tabc"))
    status, out, err = unspool("diagnose", "heads", model, bank, "--figure", tmp_path / "heads.svg")
    assert status != 0
    assert out == ""
    assert err.count("\n") == 1
    assert "is not in the sentence's text" in err
    assert not (tmp_path / "heads.svg").exists()
