import json
import logging
import threading

import pytest
from starlette.testclient import TestClient

import unspool as us
from unspool.serve.guard import key_name
from unspool.serve.requests import Limits
from unspool.serve.scheduler import Scheduler
from unspool.serve.server import Server, create_app
from unspool.serve.streaming import WorkerPool

KEYS = ("the-owner-of-the-server", "another-key-of-mine")
ASKED = {"model": "bible", "prompt": "In the beginning God created the heavens", "max_tokens": 3, "seed": 1}


@pytest.fixture(scope="module")
def server():
    return Server({"bible": Scheduler(us.load("bible"), 2**24)}, WorkerPool(2, 2, per_owner=1), Limits())


@pytest.fixture(scope="module")
def client(server):
    with TestClient(create_app(server, KEYS, json_log=True), base_url="http://localhost") as found:
        yield found


def post(client, key, path="/v1/completions", **fields):
    headers = {"Authorization": f"Bearer {key}", "x-request-id": "mine"}
    return client.post(path, json={**ASKED, **fields}, headers=headers)


def lines(caplog):
    return [json.loads(it.message) for it in caplog.records if it.name == "unspool.serve.access"]


def test_a_request_is_a_line_of_json(client, caplog):
    with caplog.at_level(logging.INFO, "unspool.serve"):
        post(client, KEYS[0], wrong=1)
        client.get("/v1/models")
    told, refused = lines(caplog)
    assert (told["request_id"], told["status"], told["model"]) == ("mine", 200, "bible")
    assert (told["generated_tokens"], told["ignored"]) == (3, ["wrong"])
    assert 0 < told["queue_seconds"] <= told["first_token_seconds"] <= told["seconds"]
    assert (refused["status"], "key" in refused) == (401, False)
    assert len(told["key"]) == 12
    assert KEYS[0] not in caplog.text
    assert ASKED["prompt"] not in caplog.text


def test_requests_are_counted_by_route_status_and_model(client):
    post(client, KEYS[0])
    client.get("/invented/path")
    text = client.get("/metrics", headers={"Authorization": f"Bearer {KEYS[0]}"}).text
    assert 'unspool_requests_total{model="bible",path="/v1/completions",status="200"}' in text
    assert 'path="unknown",status="401"' in text
    assert "invented" not in text
    for name in ("request_seconds", "request_prompt_tokens", "request_generated_tokens", "queue_seconds"):
        assert f'unspool_{name}_count{{model="bible"}}' in text


def test_keys_do_not_share_prefixes(client, caplog):
    prompt = "And Moses said unto the people of Israel, Fear not: this is a prompt of this test alone"
    with caplog.at_level(logging.INFO, "unspool.serve"):
        for key in (KEYS[0], KEYS[1], KEYS[0]):
            assert post(client, key, prompt=prompt).status_code == 200
    first, other, again = (line.get("cached_tokens", 0) for line in lines(caplog))
    assert max(first, other) <= 1  # BOS, which other prompts of the key have, too
    assert again > 5


def test_a_key_has_a_limit_of_its_own(client, server):
    held, free = threading.Event(), threading.Event()

    def work():
        held.set()
        assert free.wait(20)

    name = key_name(KEYS[0].encode())
    server.pool.submit(work, name)
    try:
        assert held.wait(10)
        refused = post(client, KEYS[0])
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "key_limit")
        assert int(refused.headers["retry-after"]) >= 1
        assert post(client, KEYS[1]).status_code == 200
    finally:
        free.set()
