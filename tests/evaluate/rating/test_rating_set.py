import json
import threading

import pytest

from unspool.evaluate.rating import RatingSet, prepare

PROMPTS = [f"q{n}?" for n in range(5)]


@pytest.fixture
def ratings(tmp_path):
    return prepare(tmp_path / "r", {"x": ["a", "b", "c", "d", "e"], "y": ["f", "g", "h", "i", "j"]}, PROMPTS)


def test_a_rater_answers_each_item_once(ratings):
    seen = []
    while (item := ratings.next("anna")) is not None:
        seen.append(item.id)
        ratings.record("anna", item.id, "1")
    assert sorted(seen) == sorted(it.id for it in ratings.items)
    assert ratings.next(" anna ") is None
    assert ratings.next("bert") is not None


def test_orders_are_the_raters_own_and_stay(ratings):
    again = RatingSet.load(ratings.folder)
    assert again == ratings
    assert again.order("anna") == ratings.order("anna")
    assert ratings.order("anna") != ratings.order("bert")


def test_a_second_answer_replaces_the_first(ratings):
    item = ratings.next("anna").id
    ratings.record("anna", item, "0")
    ratings.record("bert", item, "1")
    ratings.record("anna", item, "2")
    assert [(it.rater, it.choice) for it in ratings.answers()] == [("anna", "2"), ("bert", "1")]


def test_many_threads_and_one_file(ratings):
    def rate(name):
        mine = RatingSet.load(ratings.folder)
        while (item := mine.next(name)) is not None:
            mine.record(name, item.id, "1")

    threads = [threading.Thread(target=rate, args=(f"rater {n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ratings.answers()) == 50


@pytest.mark.parametrize(
    ("rater", "item", "choice", "said"),
    [
        ("anna", "nothing", "1", "not among the 10"),
        ("anna", None, "5", "is not an answer"),
        ("", None, "1", "must be a name"),
        (None, None, "1", "must be a name"),
        ("=SUM(A1)", None, "1", "do not start with"),
        ("a\x1b[2J", None, "1", "printable characters"),
        ("a" * 81, None, "1", "use up to 80"),
        ("\ud800", None, "1", "lone surrogate"),
    ],
)
def test_invalid_answers_raise_and_are_not_recorded(ratings, rater, item, choice, said):
    with pytest.raises(ValueError, match=said):
        ratings.record(rater, item or ratings.items[0].id, choice)
    assert ratings.answers() == []


def test_damaged_files_are_named(ratings):
    folder = ratings.folder
    with pytest.raises(FileNotFoundError, match=r"does not contain set\.json: prepare"):
        RatingSet.load(folder / "elsewhere")
    key = folder.with_name(f"{folder.name}-key.json")
    assert not list(folder.glob("*key*"))
    key.rename(folder / "gone")
    with pytest.raises(FileNotFoundError, match="is missing: copy it"):
        ratings.key()
    key.write_text('{"systems": [], "items": {}, "ties": []}')
    with pytest.raises(ValueError, match="does not belong to"):
        ratings.key()
    key.write_text("[]")
    with pytest.raises(ValueError, match="not the key"):
        ratings.key()
    good = (folder / "set.json").read_text()
    for broken in (
        good[:-40],
        "[]",
        good.replace("rating set 1", "rating set 9"),
        good.replace('"score"', '"x"'),
    ):
        (folder / "set.json").write_text(broken)
        with pytest.raises(ValueError, match=r"set\.json: not"):
            RatingSet.load(folder)
    twice = json.loads(good)
    twice["items"].append(twice["items"][0])
    (folder / "set.json").write_text(json.dumps(twice))
    with pytest.raises(ValueError, match="do not fit its scale"):
        RatingSet.load(folder)


def test_answers_of_another_set_are_skipped_with_a_warning(ratings, tmp_path):
    other = prepare(tmp_path / "s", {"x": ["a"]}, ["q"], seed=9)
    other.record("anna", other.items[0].id, "1")
    (tmp_path / "s/answers.jsonl").rename(ratings.folder / "answers.jsonl")
    with pytest.warns(UserWarning, match="is not of this set"):
        assert ratings.answers() == []
