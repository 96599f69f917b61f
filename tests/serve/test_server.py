"""What the routes check before they run anything; what they answer stands in test_app, over a real port."""

import asyncio

import pytest

from unspool.serve.api_error import ApiError
from unspool.serve.requests import ChatRequest, CompletionRequest, Limits, TokenizeRequest
from unspool.serve.server import Server
from unspool.serve.streaming import WorkerPool
from unspool.testing import random_table


@pytest.fixture
def server(scheduler_of):
    engines = {name: scheduler_of(random_table(9, seed=1)) for name in ("small", "other")}
    return Server(engines, WorkerPool(1, 1), Limits(rows=6))


def completion(**fields):
    return CompletionRequest(**{"model": "small", "prompt": [1], **fields})


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"n": 3, "best_of": 2}, "best_of", "less than"),
        ({"n": 1, "best_of": 2, "stream": True}, "best_of", "streamed"),
        ({"max_tokens": 0}, "max_tokens", "echo"),
        ({"n": 7}, "n", "7 texts"),
        ({"n": 2, "prompt": [[1]] * 4}, "n", "8 texts"),
    ],
)
def test_invalid_settings_are_refused(server, fields, param, said):
    with pytest.raises(ApiError, match=said) as found:
        asyncio.run(server.completions(completion(**fields), None))
    assert (found.value.status, found.value.param) == (400, param)


def test_alternatives_of_a_chat_need_log_probabilities(server):
    body = ChatRequest(model="small", messages=[{"role": "user", "content": "x"}], top_logprobs=2)
    with pytest.raises(ApiError, match="top_logprobs needs logprobs"):
        asyncio.run(server.chat(body, None))


def test_models_are_known_by_their_names(server):
    assert [it["id"] for it in asyncio.run(server.models())["data"]] == ["small", "other"]
    with pytest.raises(ApiError, match="choose from other, small") as found:
        server.scheduler("large")
    assert found.value.status == 404


def test_a_model_without_a_tokenizer_says_so(server):
    with pytest.raises(ApiError, match="does not have a tokenizer"):
        asyncio.run(server.tokenize(TokenizeRequest(prompt="x"), None))


def test_engines_are_well_until_one_is_closed(server):
    assert asyncio.run(server.ready())["status"] == "ok"
    assert "unspool_engine_steps" in asyncio.run(server.prometheus()).body.decode()
    server.schedulers["other"].close()
    server._ready_until = 0.0
    with pytest.raises(ApiError, match="other does not respond") as found:
        asyncio.run(server.ready())
    assert found.value.status == 503
    assert asyncio.run(server.health()) == {"status": "ok"}
