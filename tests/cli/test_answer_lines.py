import json

import unspool as us
from unspool.cli.models import Models
from unspool.cli.requests import AnsweredRequest, Request, answer_line
from unspool.testing import bigram

CYCLE = [[0.1, 0.7, 0.2], [0.2, 0.1, 0.7], [0.7, 0.2, 0.1]]


def line(number=None, **options):
    output = us.generate(bigram(CYCLE), [0], us.Greedy(), max_new_tokens=2, seed=3, **options)
    request = Request("a", 0, "Greedy()", {}, number)
    return json.loads(answer_line(AnsweredRequest(request, output, 0, True), {"Greedy()": "G"}, Models("m")))


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
