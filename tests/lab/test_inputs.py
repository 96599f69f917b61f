import json

import pytest

import unspool as us
from unspool.lab import inputs
from unspool.lab.inputs import (
    FOLDER,
    MissingInputError,
    described,
    human_texts,
    path_of,
    test_pairs as pairs_of,
)
from unspool.lab.small_models import PASSAGES


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of inputs: 40 texts of 45 words and a short one, and ten pairs."""
    texts = [f"text {number} " + "and so on " * 15 for number in range(40)]
    rows = [json.dumps({"text": text}) for text in (*texts, "too short")]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("".join(f"t{n}\ts{n}\n" for n in range(10)), encoding="utf-8")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    yield tmp_path
    inputs._hash.cache_clear()


def test_seeds_have_texts_of_their_own(folder):
    model = us.load("bible")
    texts = [human_texts(model, 8, seed, False) for seed in range(5)]
    assert {len(it) for it in texts} == {8}
    assert len({text for it in texts for text in it}) == 40
    assert human_texts(model, 8, 3, False) == texts[3]
    assert human_texts(model, 8, 5, False) == texts[0]  # there are no more


def test_a_quick_run_reads_built_in_texts(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    model = us.load("bible")
    assert [model.tokenizer.decode(it) for it in human_texts(model, 2, 0, True)] == PASSAGES[:2]


def test_the_default_folder_is_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path))
    (tmp_path / "lab-data").mkdir()
    (tmp_path / "lab-data/pairs.tsv").touch()
    assert path_of("pairs.tsv") == tmp_path / "lab-data/pairs.tsv"


def test_a_missing_input_is_named(folder, tmp_path):
    with pytest.raises(MissingInputError, match="it needs translator in the folder of --data"):
        path_of("translator")
    assert described(("translator", "pairs.tsv")) == ""


def test_a_result_names_what_it_has_read(folder):
    first = described(("pairs.tsv",))
    assert first.startswith("pairs.tsv ")
    assert len(first) == len("pairs.tsv ") + 8
    inputs._hash.cache_clear()
    (folder / "pairs.tsv").write_text("t\ts\n")
    assert described(("pairs.tsv",)) != first
    assert described(()) == ""


def test_the_source_is_the_second_column(folder):
    pairs = pairs_of(4, 1)
    assert len(set(pairs)) == 4
    assert all(source == f"s{target[1:]}" for source, target in pairs)
    assert set(pairs) & set(pairs_of(4, 0)) == set()
