import json


def test_every_claim_has_a_line(unspool, coins):
    status, out, err = unspool("lab", "list")
    assert (status, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines()] == [["coin", "not", "run"], ["die", "not", "run"]]


def test_json(unspool, coins):
    unspool("lab", "run", "coin", "--seeds", "1", "2")
    first = json.loads(unspool("lab", "list", "--json")[1].splitlines()[0])
    assert first == {
        **{"name": "coin", "statement": "A coin falls.", "source": "A book, page 7", "measured": "Tosses."},
        **{"criterion": ["heads > 0.45"], "verdict": "reproduced", "seeds": [1, 2]},
    }
