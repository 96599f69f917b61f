import argparse
import json

import pytest

import unspool as us
from unspool.cli.generate import Request, answer_json, generate_answers, make_requests
from unspool.cli.models import Models
from unspool.cli.prompts import Prompt
from unspool.decode.run import Run
from unspool.testing import bigram

ARGS = argparse.Namespace(
    chat=False,
    system=None,
    seed=7,
    max_new_tokens=5,
    n=1,
    stop=["x"],
    stop_id=[3],
    alternatives=0,
    stop_loops=False,
    stop_approximate_loops=False,
)


@pytest.fixture
def model(loaded):
    return us.load("letters")


def test_a_line_goes_before_the_options(model):
    plain, own = make_requests(
        [
            Prompt("a"),
            Prompt("b", id=3, settings={"n": 2, "stop": "y", "stop_ids": [], "decoder": "Beam(2)"}),
        ],
        model,
        "Greedy()",
        ARGS,
    )
    assert plain.options == {
        "max_new_tokens": 5,
        "n": 1,
        "seed": 7,
        "stop": ("x",),
        "stop_ids": (3,),
        "alternatives": 0,
        "on_loop": "ignore",
    }
    assert own.options == {**plain.options, "n": 2, "stop": ("y",), "stop_ids": ()}
    assert (plain.spec, own.spec, plain.id, own.id) == ("Greedy()", "Beam(2)", None, 3)
    assert (plain.number, own.number) == (0, 1)


def test_one_seed_is_drawn_for_the_whole_command(model):
    args = argparse.Namespace(**{**vars(ARGS), "seed": None})
    first, second = make_requests([Prompt("a"), Prompt("b")], model, "Greedy()", args)
    assert first.options["seed"] == second.options["seed"]


@pytest.fixture
def batches(monkeypatch):
    """The prompts and rows of every job that is run."""
    seen = []
    real = Run.finished

    def finished(run):
        seen.append((run.job.prompts, repr(run.decoder), run.job.n, run.job.rows))
        return real(run)

    monkeypatch.setattr(Run, "finished", finished)
    return seen


def test_only_neighbours_of_one_kind_are_decoded_side_by_side(model, batches):
    prompts = [
        Prompt("a", settings={"seed": 1}),
        Prompt("b", settings={"seed": 2}),
        Prompt("c", settings={"n": 2}),
        Prompt("a", settings={"n": 2}),
        Prompt("b"),
    ]
    requests = make_requests(prompts, model, "Greedy()", ARGS)
    done = []
    found = list(generate_answers(model, requests, {"Greedy()": us.Greedy()}, 8, lambda: done.append(1)))
    assert batches == [
        (((0,), (1,)), "Greedy()", 1, 8),
        (((2,), (0,)), "Greedy()", 2, 8),
        (((1,),), "Greedy()", 1, 8),
    ]
    assert [(request.text, sample) for request, _, sample in found] == [
        ("a", 0),
        ("b", 0),
        ("c", 0),
        ("c", 1),
        ("a", 0),
        ("a", 1),
        ("b", 0),
    ]
    assert len(done) == 5


def test_answers_come_before_all_are_there(model):
    requests = make_requests([Prompt("a", settings={"n": 10_000})], model, "Sample()", ARGS)
    _, _, sample = next(iter(generate_answers(model, requests, {"Sample()": us.Sample()}, 2)))
    assert sample == 0


@pytest.mark.parametrize(("tokens", "rows"), [(1, 256), (127, 256), (1023, 32), (100_000, 1)])
def test_long_texts_leave_room_for_fewer_of_them(model, batches, tokens, rows):
    settings = {"max_new_tokens": tokens, "stop_ids": [0, 1, 2, 3]}
    requests = make_requests([Prompt("a", settings=settings)], model, "Greedy()", ARGS)
    list(generate_answers(model, requests, {"Greedy()": us.Greedy()}))
    assert [batch[-1] for batch in batches] == [rows]


CYCLE = [[0.1, 0.7, 0.2], [0.2, 0.1, 0.7], [0.7, 0.2, 0.1]]


def line(number=None, **options):
    output = us.generate(bigram(CYCLE), [0], us.Greedy(), max_new_tokens=2, seed=3, **options)
    request = Request("a", 0, "Greedy()", {}, number)
    return json.loads(answer_json((request, output, 0), {"Greedy()": "G"}, Models("m")))


def test_a_line_says_what_was_asked_what_was_said_and_by_whom():
    found = line()
    assert {
        key: found[key] for key in ("prompt", "sample", "tokens", "finish_reason", "seed", "decoder", "model")
    } == {
        "prompt": "a",
        "sample": 0,
        "tokens": [1, 2],
        "finish_reason": "length",
        "seed": 3,
        "decoder": "G",
        "model": "m",
    }
    assert "id" not in found
    assert "ranked" not in found


def test_an_id_comes_first_and_alternatives_last():
    found = line("tale", alternatives=1)
    assert (next(iter(found)), list(found)[-1]) == ("id", "ranked")
    assert [step["model"][0]["token"] for step in found["ranked"]] == [1, 2]
