import asyncio
import re
import threading

import pytest
import torch
from pydantic import ValidationError
from starlette.testclient import TestClient

import unspool as us
from unspool.evaluate.rating import RatingSet, prepare
from unspool.serve.api_error import ApiError
from unspool.serve.page.routes import (
    STATIC_FOLDER,
    AttentionRequest,
    BeamTreeRequest,
    NextTokenRequest,
    PageContent,
    StaticFiles,
)
from unspool.serve.requests import Limits
from unspool.serve.scheduler import RequestTimeout, Scheduler
from unspool.serve.server import Server, create_app
from unspool.serve.streaming import ModelTask, WorkerPool, cancel_on_disconnect
from unspool.testing import random_table

PROMPT = "And God said unto Moses,"


@pytest.fixture(scope="module")
def client():
    engines = {name: Scheduler(us.load(name)) for name in ("bible", "dates")}
    server = Server(engines, WorkerPool(2, 2), Limits())
    with TestClient(create_app(server), base_url="http://localhost") as found:
        yield found


def ask(client, path, **body):
    return client.post(f"/playground/{path}", json={"model": "bible", "prompt": PROMPT, **body})


def test_models_say_what_can_be_looked_at(client):
    told = client.get("/playground/about").json()
    assert (told["ratings"], told["lab"]) == (None, False)
    bible, dates = told["models"]
    assert (bible["name"], bible["is_encoder_decoder"], bible["attention"], bible["basis"]) == (
        "bible",
        False,
        True,
        True,
    )
    assert (dates["name"], dates["is_encoder_decoder"], dates["context"]) == ("dates", True, None)


def test_next_tokens_with_good_and_bad_decoders(client):
    decoders = ["Sample(TopP(0.9))", "Sample(", "Beam(2)", "Sample(BasisAware(0.1))", "Beam(1000)"]
    told = ask(client, "next-token", decoders=decoders, count=5).json()
    assert len(told["tokens"]) == 5
    good, unread, whole, basis, wide = told["decoders"]
    assert good["statuses"] == ["kept"] * 5
    assert "is not a decoder" in unread["error"]
    assert "token by token" in whole["error"]
    assert basis["threshold"] == 0.1
    assert "allows" in wide["error"]


def test_a_beam_and_its_bounds(client):
    told = ask(client, "beam-tree", decoder="Beam(3)", max_tokens=4).json()
    assert len(told["texts"]) == 3
    assert told["nodes"][0]["parent"] == -1
    refused = ask(client, "beam-tree", decoder="Beam(17)")
    assert (refused.status_code, "allows 16" in refused.json()["error"]["message"]) == (400, True)


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
def test_errors_have_the_format_of_the_api(client, path, body, status):
    answer = ask(client, path, **body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


PROMPTS = ["How are you?", "What is it?"]
SYSTEMS = {"one": ["Fine.", "A cat."], "other": ["<b>Well</b>", "cat cat cat"]}


@pytest.fixture
def asked():
    opened = []

    def make(exhibits, keys=()):
        app = create_app(Server({}, WorkerPool(1, 1), Limits()), keys, exhibits)
        opened.append(TestClient(app, base_url="http://localhost"))
        return opened[-1].__enter__()

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.mark.parametrize("scale", ["score", "preference"])
def test_a_rater_goes_through_a_set(asked, tmp_path, scale):
    ratings = prepare(tmp_path / "set", SYSTEMS, PROMPTS, scale=scale)
    client = asked(PageContent(ratings))
    told = client.get("/playground/rating", params={"rater": "anna"}).json()
    assert "one" not in str(told["item"].values())  # nobody is named
    choice = next(iter(told["scale"]["choices"]))
    seen = []
    while told["item"]:
        seen.append(told["item"]["id"])
        answer = {"rater": "anna", "item": told["item"]["id"], "choice": choice}
        told = client.post("/playground/rating", json=answer).json()
        assert told["answered"] == len(seen)
    assert sorted(seen) == sorted(item.id for item in ratings.items)
    assert {(it.item, it.choice) for it in RatingSet.load(ratings.folder).answers()} == {
        (it, choice) for it in seen
    }
    report = client.get("/playground/rating-report").json()
    assert {each["system"] for each in report["systems"]} == set(SYSTEMS)
    assert report["answers"] == len(seen)
    assert client.get("/playground/about").json()["ratings"] == str(ratings.folder)


def test_what_cannot_be_answered_is_refused(asked, tmp_path):
    ratings = prepare(tmp_path / "set", SYSTEMS, PROMPTS)
    client, item = asked(PageContent(ratings)), ratings.items[0].id
    for body in (
        {"rater": "anna", "item": item, "choice": "3"},
        {"rater": "anna", "item": "nothing", "choice": "1"},
        {"rater": "=anna", "item": item, "choice": "1"},
        {"rater": "a" * 81, "item": item, "choice": "1"},
    ):
        refused = client.post("/playground/rating", json=body)
        assert (refused.status_code, bool(refused.json()["error"]["message"])) == (400, True)
    assert client.get("/playground/rating", params={"rater": " "}).status_code == 400
    assert client.get("/playground/rating-report").status_code == 400  # nobody has answered yet
    ratings.record("anna", item, "1")
    ratings.folder.with_name("set-key.json").unlink()
    assert client.get("/playground/rating-report").status_code == 404


def test_answers_belong_to_a_key_and_results_to_the_owner(asked, tmp_path):
    ratings, keys = (
        prepare(tmp_path / "set", SYSTEMS, PROMPTS),
        ("the-owner-of-the-server", "another-key-of-mine"),
    )
    client, item = asked(PageContent(ratings), keys), ratings.items[0].id
    owner, other = ({"Authorization": f"Bearer {key}"} for key in keys)
    body = {"rater": "anna", "item": item, "choice": "1"}
    for headers in (owner, other):
        assert client.post("/playground/rating", json=body, headers=headers).json()["answered"] == 1
    assert len(ratings.answers()) == 2
    assert len({it.rater for it in ratings.answers()}) == 2
    assert client.get("/playground/rating-report", headers=other).status_code == 403
    assert client.get("/playground/rating-report", headers=owner).json()["answers"] == 2


def test_claims_and_their_figures(asked, findings):
    client = asked(PageContent(None, findings))
    known, unknown = client.get("/playground/lab").json()
    assert (known["name"], known["seeds"], known["verdict"]) == ("halves", [*range(1, 11)], "supported")
    assert (unknown["verdict"], unknown["seeds"]) == ("not run", [])
    assert known["numbers"]["half"]["mean"] == 2.75
    assert known["effect"]["mean"] == pytest.approx(0.555)
    assert (known["stale"], known["plan"]["primary"]) == (True, "a half")
    assert client.get("/playground/lab/halves").json()["svg"].startswith("<svg")
    for name in ("unknown", "nothing"):
        assert client.get(f"/playground/lab/{name}").status_code == 404


def test_routes_of_missing_content_are_missing(asked):
    client = asked(PageContent())
    for path in ("rating?rater=a", "rating-report", "lab", "lab/halves"):
        assert client.get(f"/playground/{path}").status_code == 404
    assert client.get("/playground/about").json() == {"models": [], "ratings": None, "lab": False}


class Client:
    """A request whose client goes away when it is told to."""

    def __init__(self):
        self.gone = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}


def task_of(engine, view, pool=None, seconds=60.0):
    return ModelTask(engine, pool or WorkerPool(1, 0), lambda: lambda model, emit: emit(view(model)), seconds)


async def first(task, client):
    async with cancel_on_disconnect(task, client):
        return await anext(task)


def answer(engine, view, **options):
    async def main():
        return await first(task_of(engine, view, **options), Client())

    return asyncio.run(main())


def test_a_function_of_the_shared_model_is_answered(scheduler_of):
    model = random_table(5, seed=1)
    engine = scheduler_of(model)
    found = answer(engine, lambda shared: shared.start([[1]])[0].logp_NV)
    torch.testing.assert_close(found, model.start([[1]])[0].logp_NV)
    assert answer(engine, lambda shared: shared.with_model(lambda it: it is model))
    with engine._change:
        assert engine._change.wait_for(lambda: not engine._requests, 10)


def test_errors_cross_over(scheduler_of):
    def wrong(shared):
        raise ValueError("so it is")

    with pytest.raises(ApiError, match="so it is"):
        answer(scheduler_of(random_table(5, seed=1)), wrong)


def test_time_is_limited(scheduler_of):
    with pytest.raises(RequestTimeout):
        answer(scheduler_of(random_table(5, seed=1)), lambda shared: shared.start([[1]]), seconds=-1)


def test_a_client_that_goes_away_ends_it(scheduler_of):
    engine, began = scheduler_of(random_table(5, seed=1)), threading.Event()

    def endless(shared):
        step, state = shared.start([[1]])
        began.set()
        while True:
            step, state = shared.step(state, step.logp_NV.argmax(-1))

    async def main():
        client = Client()
        task = asyncio.create_task(first(task_of(engine, endless), client))
        assert await asyncio.to_thread(began.wait, 10)
        client.gone.set()
        with pytest.raises(ApiError, match="cancelled"):
            await task

    asyncio.run(main())
    with engine._change:
        assert engine._change.wait_for(lambda: not engine._requests, 10)


def test_a_client_that_goes_away_before_its_turn_is_answered(scheduler_of):
    engine, free = scheduler_of(random_table(5, seed=1)), threading.Event()

    async def main():
        pool, client = WorkerPool(1, 1), Client()
        running = task_of(engine, lambda shared: free.wait(10), pool)
        waiting = asyncio.create_task(first(task_of(engine, lambda shared: None, pool), client))
        client.gone.set()
        await asyncio.sleep(0.01)
        free.set()
        assert await first(running, Client())
        with pytest.raises(ApiError, match="cancelled"):
            await asyncio.wait_for(waiting, 10)

    asyncio.run(main())


def test_no_more_wait_than_may(scheduler_of):
    engine, free = scheduler_of(random_table(5, seed=1)), threading.Event()

    async def main():
        pool = WorkerPool(1, 0)
        running = task_of(engine, lambda shared: free.wait(10), pool)
        with pytest.raises(ApiError, match="queue is full"):
            task_of(engine, lambda shared: None, pool)
        free.set()
        assert await first(running, Client())

    asyncio.run(main())


SHORT = {"model": "bible", "prompt": "x"}


def test_missing_fields_have_defaults():
    assert NextTokenRequest(**SHORT).count == 40
    assert BeamTreeRequest(**SHORT).decoder == "Beam(4)"
    assert AttentionRequest(**SHORT).kind is None


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (NextTokenRequest, {"prompt": ""}),
        (NextTokenRequest, {"prompt": []}),
        (NextTokenRequest, {"prompt": "x" * 20_001}),
        (NextTokenRequest, {"prompt": [1] * 4097}),
        (NextTokenRequest, {"tokens": [1] * 129}),
        (NextTokenRequest, {"tokens": [-1]}),
        (NextTokenRequest, {"decoders": ["Greedy()"] * 9}),
        (NextTokenRequest, {"decoders": ["G" * 1001]}),
        (NextTokenRequest, {"count": 101}),
        (NextTokenRequest, {"colour": "red"}),
        (BeamTreeRequest, {"max_tokens": 65}),
        (AttentionRequest, {"kind": "sideways"}),
        (AttentionRequest, {"layer": -1}),
    ],
)
def test_what_is_too_much_or_unknown_is_refused(kind, fields):
    with pytest.raises(ValidationError):
        kind(**{**SHORT, **fields})


async def behind(scope, receive, send):
    """What stands behind the page."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})


PAGE = StaticFiles(behind)
CLIENT = TestClient(PAGE)


def test_the_page_and_its_files_are_given():
    page = CLIENT.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
    assert "/playground/main.js" in named
    for name in named:
        assert CLIENT.get(name).status_code == 200
    head = CLIENT.head("/")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(page.content)))


def test_the_browser_is_told_to_run_nothing_else():
    policy = CLIENT.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "*" not in policy
    for name in PAGE.files:
        assert CLIENT.get(name).headers["content-security-policy"] == policy


def test_nothing_foreign_is_named_and_no_html_is_made_of_strings():
    for path in STATIC_FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace('"http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|//cdn", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), (
            path.name
        )


def test_everything_else_is_left_to_what_stands_behind():
    for path in (
        "/playground/",
        "/playground/next-token",
        "/playground/../guard.py",
        "/playground/page",
        "/v1/models",
    ):
        assert CLIENT.get(path).status_code == 418
    assert CLIENT.post("/").status_code == 418
