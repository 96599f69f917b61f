import pytest
from starlette.testclient import TestClient

from unspool.evaluate.rating import RatingSet, prepare
from unspool.serve.app import create_app
from unspool.serve.page.routes import NOTHING, Exhibits
from unspool.serve.requests import Limits
from unspool.serve.server import Server
from unspool.serve.worker_pool import WorkerPool

PROMPTS = ["How are you?", "What is it?"]
SYSTEMS = {"one": ["Fine.", "A cat."], "other": ["<b>Well</b>", "cat cat cat"]}


@pytest.fixture
def asked():
    opened = []

    def make(exhibits):
        app = create_app(Server({}, WorkerPool(1, 1), Limits()), (), exhibits)
        opened.append(TestClient(app, base_url="http://localhost"))
        return opened[-1].__enter__()

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.mark.parametrize("scale", ["score", "preference"])
def test_a_rater_goes_through_a_set(asked, tmp_path, scale):
    ratings = prepare(tmp_path / "set", SYSTEMS, PROMPTS, scale=scale)
    client = asked(Exhibits(ratings))
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
    client, item = asked(Exhibits(ratings)), ratings.items[0].id
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
    (ratings.folder / "key.json").unlink()
    assert client.get("/playground/rating-report").status_code == 404


def test_claims_and_their_figures(asked, findings):
    client = asked(Exhibits(None, findings))
    known, unknown = client.get("/playground/lab").json()
    assert (known["name"], known["seeds"], known["verdict"]) == ("halves", [1, 2], "reproduced")
    assert (unknown["verdict"], unknown["seeds"]) == ("not run", [])
    assert known["numbers"]["half"]["mean"] == 0.75
    assert client.get("/playground/lab/halves").json()["svg"].startswith("<svg")
    for name in ("unknown", "nothing"):
        assert client.get(f"/playground/lab/{name}").status_code == 404


def test_what_is_not_shown_has_no_routes(asked):
    client = asked(NOTHING)
    for path in ("rating?rater=a", "rating-report", "lab", "lab/halves"):
        assert client.get(f"/playground/{path}").status_code == 404
    assert client.get("/playground/about").json() == {"models": [], "ratings": None, "lab": False}
