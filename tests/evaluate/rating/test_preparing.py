import json

import pytest

from unspool.evaluate.rating.rating_set import prepare

PROMPTS = ["one?", "two?", "three?"]
SYSTEMS = {"ours": ["a1", "a2", "same"], "theirs": ["b1", "b2", "same"], "old": ["c1", "c2", "c3"]}


def test_scores_by_hand(tmp_path):
    ratings = prepare(tmp_path / "r", SYSTEMS, PROMPTS, seed=1)
    assert sorted(it.texts[0] for it in ratings.items) == ["a1", "a2", "b1", "b2", "c1", "c2", "c3", "same"]
    key = ratings.key()
    by_text = {it.texts[0]: key.items[it.id] for it in ratings.items}
    assert by_text["same"].systems == (("ours", "theirs"),)
    assert by_text["c2"].systems == (("old",),)
    assert by_text["c2"].prompt == 1


def test_pairs_by_hand(tmp_path):
    ratings = prepare(tmp_path / "r", SYSTEMS, PROMPTS, scale="preference")
    pairs = sorted(tuple(sorted(it.texts)) for it in ratings.items)
    assert pairs == [
        ("a1", "b1"),
        ("a1", "c1"),
        ("a2", "b2"),
        ("a2", "c2"),
        ("b1", "c1"),
        ("b2", "c2"),
        ("c3", "same"),
    ]
    assert ratings.key().ties == (("ours", "theirs"),)


def test_items_do_not_name_systems_and_sides_change(tmp_path):
    prompts = [f"p{n}" for n in range(40)]
    systems = {name: [f"{n} {len(name)}" for n in range(40)] for name in ("ours-x", "theirs-y")}
    ratings = prepare(tmp_path / "r", systems, prompts, scale="preference", seed=3)
    seen = (tmp_path / "r" / "set.json").read_text()
    assert "ours" not in seen
    assert "theirs" not in seen
    first = [ratings.key().items[it.id].systems[0][0] for it in ratings.items]
    assert 10 < first.count("ours-x") < 30
    assert [it.prompt for it in ratings.items] != prompts


def test_the_seed_decides(tmp_path):
    made = [prepare(tmp_path / str(n), SYSTEMS, PROMPTS, seed=seed) for n, seed in enumerate((1, 1, 2))]
    assert made[0].items == made[1].items
    assert made[0].items != made[2].items


def test_some_of_the_prompts(tmp_path):
    ratings = prepare(tmp_path / "r", {"x": ["a", "b", "c"]}, PROMPTS, max_prompts=2)
    assert len(ratings.items) == 2
    assert len(prepare(tmp_path / "s", {"x": ["a", "b", "c"]}, PROMPTS, max_prompts=20).items) == 3


@pytest.mark.parametrize(
    ("systems", "prompts", "options", "said"),
    [
        ({}, PROMPTS, {}, "needs at least 1 systems, found 0"),
        ({"x": ["a"]}, PROMPTS, {}, "'x' has 1 outputs for 3 prompts"),
        ({"x": []}, [], {}, "prompts is empty"),
        ({"x": ["", " ", ""]}, PROMPTS, {}, "all outputs of system 'x' are empty"),
        ({"x": ["a", "b", "c"]}, PROMPTS, {"scale": "preference"}, "needs at least 2"),
        ({"x": ["a"] * 3, "y": ["a"] * 3}, PROMPTS, {"scale": "preference"}, "nothing to compare"),
        ({"x": ["a", "b", 3]}, PROMPTS, {}, "x 2 is 3, but must be a string"),
        ({"x": "abc"}, PROMPTS, {}, "must be a list of texts"),
        ({"x": ["a", "b", "\ud800"]}, PROMPTS, {}, "lone surrogate"),
        ({"x": ["a", "b", "c"]}, PROMPTS, {"scale": "stars"}, "must be one of"),
    ],
)
def test_invalid_outputs_raise(tmp_path, systems, prompts, options, said):
    with pytest.raises((ValueError, TypeError), match=said):
        prepare(tmp_path / "r", systems, prompts, **options)
    assert not (tmp_path / "r").exists()


def test_a_set_is_never_written_over(tmp_path):
    prepare(tmp_path / "r", SYSTEMS, PROMPTS)
    before = json.loads((tmp_path / "r/set.json").read_text())
    with pytest.raises(FileExistsError, match="already contains a rating set"):
        prepare(tmp_path / "r", SYSTEMS, PROMPTS, seed=5)
    assert json.loads((tmp_path / "r/set.json").read_text()) == before
