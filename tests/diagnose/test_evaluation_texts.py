import json

import pytest

import unspool as us
from unspool.data.known_languages.known_language import KnownLanguage
from unspool.diagnose.evaluation_texts import find_windows

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
    return learnt(TASK, {"kind": "rnn_seq2seq"}, tmp_path / "run", tokenizer={"kind": "words"})


def test_a_run_on_an_artificial_language_is_compared_with_the_truth(tmp_path):
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run")
    found = find_windows(model, run, None, 50, seed=0)
    assert found.source == "sentences of its language"
    assert isinstance(found.language, KnownLanguage)
    assert found.windows != find_windows(model, run, None, 50, seed=1).windows
    truth = found.distance_to_truth(model, 50)
    assert 0 < truth.least <= truth.reached
    assert truth.delta > 0


def test_no_truth_for_a_text_file_or_without_a_recipe(tmp_path):
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run")
    path = tmp_path / "text.txt"
    path.write_text("w01 w02 w03")
    given = find_windows(model, run, path, 50, seed=0)
    assert (given.source, given.language, len(given.windows)) == (str(path), None, 1)
    (run / "recipe.toml").unlink()
    own = find_windows(model, run, None, 50, seed=0)
    assert (own.source, own.distance_to_truth(model, 50)) == ("its own words", None)


def test_an_unreadable_recipe_warns(tmp_path):
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run")
    (run / "recipe.toml").write_text("seed = ")
    with pytest.warns(match="cannot read the run's recipe"):
        assert find_windows(model, run, None, 50, seed=0).source == "its own words"


def test_no_truth_if_tokens_are_not_the_words_of_the_language(tmp_path):
    model, run = learnt(LANGUAGE, {"kind": "rnn_lm"}, tmp_path / "run", tokenizer={"kind": "characters"})
    with pytest.warns(match="its tokens are not the words of the language"):
        assert find_windows(model, run, None, 50, seed=0).language is None


def test_an_encoder_decoder_uses_the_validation_pairs_of_its_run(copying):
    model, run = copying
    found = find_windows(model, run, None, 50, seed=0)
    assert (found.source, len(found.windows)) == ("the run's validation pairs", 9)
    for it in found.windows:  # a copy: source and target are the same
        assert it.tokens[: it.first] == it.tokens[it.first :]
        assert it.tokens[-1] in model.tokenizer.eos_ids


def test_an_encoder_decoder_without_pairs_uses_random_sources(copying):
    model, run = copying
    (run / "recipe.toml").unlink()
    found = find_windows(model, run, None, 50, seed=0)
    assert found.source == "its answers to random words"
    assert sum(len(it.tokens) - it.first for it in found.windows) >= 50


def test_an_encoder_decoder_uses_the_pairs_of_a_file(copying, tmp_path):
    model, run = copying
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps({"source": it, "target": it}) for it in ("a b", "c")))
    found = find_windows(model, run, path, 50, seed=0)
    a, b, end = *model.tokenizer.encode("a b"), min(model.tokenizer.eos_ids)
    assert found.source == str(path)
    first = found.windows[0]
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
        ("empty.jsonl", "\n", "contains no pair"),
    ],
)
def test_an_encoder_decoder_raises_for_texts_without_sources(copying, tmp_path, name, content, said):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        find_windows(*copying, path, 50, seed=0)
