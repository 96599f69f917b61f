import json

import pytest
import torch
from torch import nn

import unspool as us
from unspool.cli.diagnose.model import TokenWriter
from unspool.diagnose.word_senses import Occurrence
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities


class Model(nn.Module, Abilities):
    @property
    def sense_head(self):
        return self.head


@pytest.fixture
def kerbs(monkeypatch):
    """`unspool.load` gives a model of three words, of which the second has two senses."""
    model = Model()
    model.tokenizer = None
    model.head = Kerbs(2, torch.tensor([0, 1, 2, 1]), 3)
    model.head.senses_SD.data = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    model.head.theta_S.data = torch.tensor([0.0, 0.5, -1.0, 2.0])
    monkeypatch.setattr(us, "load", lambda name, **where: model)


@pytest.mark.usefixtures("kerbs")
def test_the_table_shows_words_with_most_senses_first(unspool):
    status, out, err = unspool("diagnose", "senses", "run", "--words", "2", "--examples", "0")
    assert (status, err) == (0, "")
    first, *rows = out.splitlines()
    assert first == "words with 1 sense: 2,  2 senses: 1"
    shown = [line.split() for line in rows if line.lstrip().startswith("#")]
    assert shown == [["#1", "2", "+0.50", "+2.00", "0.00", "…", "0.00"], ["#0", "1", "+0.00"]]


@pytest.mark.usefixtures("kerbs")
def test_json_by_hand(unspool):
    found = [json.loads(line) for line in unspool("diagnose", "senses", "run", "--json")[1].splitlines()]
    assert [it["word"] for it in found] == [1, 0, 2]
    assert found[0] == {
        "word": 1,
        "thetas": [0.5, 2.0],
        "lengths": [2.0, 1.0],
        "closest": 0.0,
        "farthest": 0.0,
        "text": "#1",
    }


def test_another_head_is_refused(unspool, loaded):
    status, _, err = unspool("diagnose", "senses", "tiny")
    assert status == 2
    assert "does not have a KerBS head" in err


@pytest.mark.usefixtures("kerbs")
def test_a_picture_is_drawn(unspool, tmp_path):
    path = tmp_path / "senses.svg"
    status, out, err = unspool("diagnose", "senses", "run", "--examples", "0", "--figure", path)
    assert (status, err) == (0, f"unspool: wrote {path}\n")
    assert out.startswith("words with 1 sense: 2")
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    ("name", "said"), [("a.txt", "unknown figure format"), ("no/a.svg", "there is no folder")]
)
def test_a_picture_that_cannot_be_written_fails_before_the_work(unspool, loaded, tmp_path, name, said):
    status, out, err = unspool("diagnose", "senses", "tiny", "--figure", tmp_path / name)
    assert (status, out, loaded) == (2, "", [])
    assert said in err


def test_a_run_that_is_not_there_is_named(unspool, tmp_path):
    status, out, err = unspool("diagnose", "senses", tmp_path / "nowhere")
    assert (status, out) == (2, "")
    assert "nowhere" in err


class Specials:
    def decode(self, ids):
        return "" if ids == [1] else "word"


def test_special_tokens_are_shown_by_their_numbers(unspool, kerbs, monkeypatch):
    monkeypatch.setattr(us.load("run"), "tokenizer", Specials())
    found = [json.loads(line) for line in unspool("diagnose", "senses", "run", "--json")[1].splitlines()]
    assert [it["text"] for it in found] == ["#1", "'word'", "'word'"]


@pytest.mark.usefixtures("kerbs")
def test_a_run_without_its_text_says_so_and_shows_the_rest(unspool):
    status, out, err = unspool("diagnose", "senses", "run")
    assert status == 0
    assert out.startswith("words with 1 sense: 2")
    assert "contexts are left out" in err


def test_the_use_and_contexts_of_senses_are_from_the_runs_own_text(unspool, tmp_path):
    recipe = {
        "data": {
            "kind": "language",
            "language": {"kind": "senses", "word_count": 20},
            "train": 50,
            "valid": 9,
        },
        "batches": {"kind": "bucketed", "tokens": 256},
        "model": {"kind": "rnn_lm", "width": 8, "head": {"kind": "kerbs", "senses": 2.0}},
        "schedule": {"kind": "constant"},
        "train": {"updates": 2, "threads": 1},
    }
    model = us.train(recipe, out=tmp_path / "run")
    status, out, err = unspool("diagnose", "senses", tmp_path / "run", "--words", "24", "--json")
    assert (status, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    said = [it for it in found if it["count"]]
    assert len(said) > 10
    for it in said:
        assert sum(it["shares"]) == pytest.approx(1.0)
        assert [len(of_sense) for of_sense in it["contexts"]] == [min(2, it["count"])] * 2
        assert "sources" not in it
    words = set(model.tokenizer.decode(range(24)).split())
    contexts = [context for it in said for each in it["contexts"] for context in each]
    assert all(set(context.split()) <= words | {"⟨start⟩"} for context in contexts)
    assert all(context.startswith("⟨start⟩") for context in contexts if len(context.split()) < 8)
    assert "⟨start⟩" in contexts
    path = tmp_path / "senses.svg"
    status, out, _ = unspool("diagnose", "senses", tmp_path / "run", "--words", "3", "--figure", path)
    assert status == 0
    assert out.count(" %  after  ") == 2 * out.count(" times")
    assert "<svg" in path.read_text()


def test_the_source_of_an_encoder_decoder_is_shown(unspool, tmp_path):
    recipe = {
        "data": {"kind": "task", "task": {"kind": "copy"}, "train": 50, "valid": 9},
        "tokenizer": {"kind": "words"},
        "batches": {"kind": "bucketed", "tokens": 256},
        "model": {"kind": "rnn_seq2seq", "width": 8, "head": {"kind": "kerbs", "senses": 2.0}},
        "schedule": {"kind": "constant"},
        "train": {"updates": 1, "threads": 1},
    }
    us.train(recipe, out=tmp_path / "run")
    out = unspool("diagnose", "senses", tmp_path / "run", "--words", "99", "--json")[1]
    said = [it for it in map(json.loads, out.splitlines()) if it["count"]]
    assert len(said) > 5
    for it in said:
        for contexts, sources in zip(it["contexts"], it["sources"], strict=True):
            for context, source in zip(contexts, sources, strict=True):
                # A copy says what stands in its source: all of what was said so far is a part of it.
                assert context.removeprefix("⟨start⟩").strip() in source
    argv = ("diagnose", "senses", tmp_path / "run", "--words", "99", "--figure", tmp_path / "senses.svg")
    shown = [line for line in unspool(*argv)[1].splitlines() if " %  after  " in line]
    places = [place for line in shown for place in line.partition("after  ")[2].split("  |  ")]
    assert len(places) > 10
    for source, arrow, before in (place.partition(" → ") for place in places):
        assert (arrow, before == "") == (" → ", False)
        assert len(source.removesuffix(" …").split()) <= 5
    assert any(place.partition(" → ")[0].endswith(" …") for place in places)


class Ends:
    """Tokens 1 and 2 are words, 0 ends a text; BOS is `bos_id`, if any."""

    eos_ids = frozenset({0})

    def __init__(self, bos_id):
        self.bos_id = bos_id

    def decode(self, ids):
        return " ".join("ab"[it - 1] for it in ids if it in (1, 2))


@pytest.mark.parametrize(
    ("bos", "tokens", "spelt"),
    [
        (3, (3,), "⟨start⟩"),
        (3, (3, 1, 2), "⟨start⟩ a b"),
        (3, (1, 2), "a b"),
        (3, (1, 0, 3, 2), "a ⟨start⟩ b"),
        (None, (0,), "⟨start⟩"),
        (None, (1, 0, 2), "a ⟨start⟩ b"),
    ],
)
def test_the_beginning_of_a_text_is_marked(bos, tokens, spelt):
    assert TokenWriter(Ends(bos)).text(tokens) == spelt


def test_a_model_of_numbers_spells_them():
    assert TokenWriter(None).context(Occurrence(1.0, (3, 4), tuple(range(9)))) == "#0 #1 #2 #3 #4 … → #3 #4"
    assert TokenWriter(None).context(Occurrence(1.0, (3,))) == "#3"
