"""The page's questions over the application itself, without a port."""

import pytest
from starlette.testclient import TestClient

import unspool as us
from unspool.serve.app import create_app
from unspool.serve.requests import Limits
from unspool.serve.scheduler import Engine
from unspool.serve.server import Server
from unspool.serve.worker_pool import WorkerPool

PROMPT = "And God said unto Moses,"


@pytest.fixture(scope="module")
def client():
    engines = {name: Engine(us.load(name)) for name in ("bible", "dates")}
    server = Server(engines, WorkerPool(2, 2), Limits())
    with TestClient(create_app(server), base_url="http://localhost") as found:
        yield found


def ask(client, path, **body):
    return client.post(f"/playground/{path}", json={"model": "bible", "prompt": PROMPT, **body})


def test_models_say_what_can_be_looked_at(client):
    told = client.get("/playground/about").json()
    assert (told["ratings"], told["lab"]) == (None, False)
    bible, dates = told["models"]
    assert (bible["name"], bible["answers"], bible["attention"], bible["basis"]) == (
        "bible",
        False,
        True,
        True,
    )
    assert (dates["name"], dates["answers"], dates["context"]) == ("dates", True, None)


def test_next_tokens_with_good_and_bad_decoders(client):
    decoders = ["Sample(TopP(0.9))", "Sample(", "Beam(2)", "Sample(BasisAware(0.1))", "Beam(1000)"]
    told = ask(client, "next-token", decoders=decoders, count=5).json()
    assert len(told["tokens"]) == 5
    good, unread, whole, basis, wide = told["decoders"]
    assert good["fates"] == ["kept"] * 5
    assert "is not a decoder" in unread["error"]
    assert "whole texts" in whole["error"]
    assert basis["threshold"] == 0.1
    assert "allows" in wide["error"]


def test_a_beam_and_its_bounds(client):
    told = ask(client, "beam-tree", decoder="Beam(3)", max_tokens=4).json()
    assert len(told["texts"]) == 3
    assert told["nodes"][0]["parent"] == -1
    refused = ask(client, "beam-tree", decoder="Beam(17)")
    assert (refused.status_code, "16 rows" in refused.json()["error"]["message"]) == (400, True)


def test_attention_of_both_kinds_of_models(client):
    assert ask(client, "attention", layer=3).json()["kinds"] == ["self"]
    told = ask(client, "attention", model="dates", prompt="May 5th, 1921", max_tokens=12).json()
    assert told["kinds"] == ["source", "encoder", "decoder"]


@pytest.mark.parametrize("path", ["next-token", "beam-tree", "attention"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "nothing"}, 404),
        ({"prompt": [10**6]}, 400),
        ({"prompt": [5] * 400}, 400),
        ({"prompt": {"a": 1}}, 400),
        ({"surprise": 1}, 400),
    ],
)
def test_what_is_wrong_is_told_as_everywhere(client, path, body, status):
    answer = ask(client, path, **body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
