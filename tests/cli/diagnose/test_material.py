import json

import pytest

import unspool as us
from unspool.cli.diagnose.material import find_material
from unspool.data.known_languages.known_language import KnownLanguage

LANGUAGE = {"kind": "language", "language": {"kind": "senses", "word_count": 20}, "train": 50, "valid": 9}
TASK = {"kind": "task", "task": {"kind": "copy"}, "train": 50, "valid": 9}


def learnt(data, model, out, **more):
    """A model after one update, and its folder."""
    recipe = {
        "data": data,
        "batches": {"kind": "bucketed", "tokens": 256},
        "model": {"width": 8, **model},
        "schedule": {"kind": "constant"},
        "train": {"updates": 1, "threads": 1},
        **more,
    }
    return us.train(recipe, out=out), out


@pytest.fixture
def copying(tmp_path):
    return learnt(TASK, {"kind": "rnn_seq2seq"}, tmp_path / "run", text={"kind": "words"})


def test_a_language_is_found_and_its_sentences_are_set_beside_the_truth(tmp_path):
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run")
    found = find_material(model, run, None, 50, seed=0)
    assert found.whose == "sentences of its language"
    assert isinstance(found.language, KnownLanguage)
    assert found.parts != find_material(model, run, None, 50, seed=1).parts
    truth = found.beside_truth(model, 50)
    assert 0 < truth.least <= truth.reached
    assert truth.delta > 0


def test_without_its_recipe_or_with_a_text_there_is_no_truth(tmp_path):
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run")
    path = tmp_path / "text.txt"
    path.write_text("w01 w02 w03")
    given = find_material(model, run, path, 50, seed=0)
    assert (given.whose, given.language, len(given.parts)) == (str(path), None, 1)
    (run / "recipe.toml").unlink()
    own = find_material(model, run, None, 50, seed=0)
    assert (own.whose, own.beside_truth(model, 50)) == ("its own words", None)


def test_a_recipe_that_cannot_be_read_is_told(tmp_path, capsys):
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run")
    (run / "recipe.toml").write_text("seed = ")
    assert find_material(model, run, None, 50, seed=0).whose == "its own words"
    assert "unspool: the run's recipe cannot be read" in capsys.readouterr().err


def test_other_tokens_than_the_languages_words_have_no_truth(tmp_path, capsys):
    text = {"kind": "characters"}
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run", text=text)
    assert find_material(model, run, None, 50, seed=0).language is None
    assert "its tokens are not the words of the language" in capsys.readouterr().err


def test_an_encoder_decoder_is_given_the_pairs_of_its_run(copying):
    model, run = copying
    found = find_material(model, run, None, 50, seed=0)
    assert (found.whose, len(found.parts)) == ("the run's validation pairs", 9)
    for it in found.parts:  # a copy: source and target are the same
        assert it.tokens[: it.first] == it.tokens[it.first :]
        assert it.tokens[-1] in model.tokenizer.eos_ids


def test_an_encoder_decoder_without_pairs_answers_random_words(copying):
    model, run = copying
    (run / "recipe.toml").unlink()
    found = find_material(model, run, None, 50, seed=0)
    assert found.whose == "its answers to random words"
    assert sum(len(it.tokens) - it.first for it in found.parts) >= 50


def test_an_encoder_decoder_is_given_a_file_of_pairs(copying, tmp_path):
    model, run = copying
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps({"source": it, "target": it}) for it in ("a b", "c")))
    found = find_material(model, run, path, 50, seed=0)
    a, b, end = *model.tokenizer.encode("a b"), min(model.tokenizer.eos_ids)
    assert found.whose == str(path)
    first = found.parts[0]
    assert first.tokens[first.first :] == (a, b, end)
    assert first.tokens[: first.first] == (a, b)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "text.txt",
            "a b",
            "an encoder–decoder is measured on pairs",
        ),
        ("text.jsonl", '{"text": "a b"}', r"text\.jsonl:1: expected \{\"source\""),
        ("empty.jsonl", "\n", "there is no pair in this file"),
    ],
)
def test_an_encoder_decoder_refuses_a_text_without_sources(copying, tmp_path, name, content, said):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        find_material(*copying, path, 50, seed=0)
