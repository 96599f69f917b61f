import random

import pytest

from unspool.evaluate.rating import prepare, report


def by_text(ratings):
    return {it.texts: it.id for it in ratings.items}


def test_scores_by_hand(tmp_path):
    ratings = prepare(tmp_path / "r", {"x": ["a", "b"], "y": ["c", "b"]}, ["p", "q"])
    ids = {it.texts[0]: it.id for it in ratings.items}
    for rater, text, choice in [
        ("u", "a", "2"),
        ("v", "a", "1"),
        ("u", "b", "0"),
        ("v", "c", "0"),
        ("u", "c", "1"),
    ]:
        ratings.record(rater, ids[text], choice)
    found = report(ratings)
    assert (found.items, found.answers, found.raters) == (3, 5, {"u": 3, "v": 2})
    x, y = found.systems
    assert (x.system, x.answers, x.value.value) == ("x", 3, pytest.approx(1.0))
    assert (y.system, y.answers, y.value.value) == ("y", 3, pytest.approx(1 / 3))
    assert x.counts == {"0": 1, "1": 1, "2": 1}
    # by prompt: x has 1.5 and 0, y has 0.5 and 0
    assert found.pairs["x", "y"].difference == pytest.approx(0.5)
    # two items with two ratings each: {2, 1} and {0, 1}
    assert found.alphas["nominal"].value == pytest.approx(1 - 3 * 4 / 10)


def test_preferences_by_hand(tmp_path):
    prompts = ["p", "q", "r"]
    ratings = prepare(
        tmp_path / "r", {"x": ["a", "b", "s"], "y": ["c", "d", "s"]}, prompts, scale="preference"
    )
    key = ratings.key()
    for item in ratings.items:
        ratings.record("u", item.id, "a" if key.items[item.id].systems[0] == ("x",) else "b")
    found = report(ratings)
    x, y = found.systems
    assert (x.system, x.counts) == ("x", {"won": 2, "tied": 1, "lost": 0})
    assert (y.system, y.counts) == ("y", {"won": 0, "tied": 1, "lost": 2})
    # 2½ and ½ wins, ½ added to each
    assert x.value.value / y.value.value == pytest.approx(3)
    assert found.alphas == {}
    assert found.pairs == {}


def test_a_better_system_is_found_and_raters_agree(tmp_path):
    prompts = [f"p{n}" for n in range(60)]
    systems = {name: [f"{name}{n}" for n in range(60)] for name in ("good", "bad")}
    ratings = prepare(tmp_path / "r", systems, prompts)
    dice = random.Random(0)
    for item in ratings.items:
        score = 2 if item.texts[0].startswith("good") else 0
        for rater in ("u", "v"):
            ratings.record(rater, item.id, str(score if dice.random() < 0.9 else 1))
    found = report(ratings, samples=300)
    assert [it.system for it in found.systems] == ["good", "bad"]
    assert found.systems[0].value.low > found.systems[1].value.high
    assert found.pairs["good", "bad"].p < 0.01
    assert found.alphas["ordinal"].value > found.alphas["nominal"].value > 0.5


def test_three_systems_of_which_one_was_never_shown_to_anybody(tmp_path):
    systems = {"x": ["a", "b"], "y": ["c", "d"], "z": ["e", "f"]}
    ratings = prepare(tmp_path / "r", systems, ["p", "q"], scale="preference")
    key = ratings.key()
    for item in ratings.items:
        if {it[0] for it in key.items[item.id].systems} == {"x", "y"}:
            ratings.record("u", item.id, "=")
    found = report(ratings, samples=50)
    assert {it.system for it in found.systems} == {"x", "y"}
    assert found.systems[0].value.value == pytest.approx(1)


def test_a_report_without_answers_raises(tmp_path):
    ratings = prepare(tmp_path / "r", {"x": ["a"]}, ["p"])
    with pytest.raises(ValueError, match="has no answers yet"):
        report(ratings)
    with pytest.raises(TypeError, match="is not a RatingSet"):
        report(tmp_path)
