import json

import pytest
import torch
from torch import nn

import unspool as us
from unspool.heads.kerbs import Kerbs


@pytest.fixture
def kerbs(monkeypatch):
    """`unspool.load` gives a model of three words, of which the second has two senses."""
    model = nn.Module()
    model.text = None
    model.head = Kerbs(2, torch.tensor([0, 1, 2, 1]), 3)
    model.head.senses_SD.data = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    model.head.theta_S.data = torch.tensor([0.0, 0.5, -1.0, 2.0])
    monkeypatch.setattr(us, "load", lambda name, device=None: model)


@pytest.mark.usefixtures("kerbs")
def test_the_table_shows_words_with_most_senses_first(unspool):
    status, out, err = unspool("diagnose", "senses", "run", "--words", "2")
    assert (status, err) == (0, "")
    first, *rows = out.splitlines()
    assert first == "2 words with 1  1 words with 2"
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
    assert "only a KerBS head has senses" in err
