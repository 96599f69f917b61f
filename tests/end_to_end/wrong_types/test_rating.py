"""Wrong types and values, thrown at every argument of what unspool.evaluate.rating exports."""

from dataclasses import is_dataclass

import pytest

from unspool.evaluate import rating

SYSTEMS = {"ours": ["a", "b"], "theirs": ["c", "d"]}
PROMPTS = ["p", "q"]


@pytest.fixture
def ratings(tmp_path):
    found = rating.prepare(tmp_path / "set", SYSTEMS, PROMPTS)
    for rater in ("anna", "bert"):
        found.record(rater, found.items[0].id, "1")
    return found


def calls(ratings, folder):
    """What is called, and what it needs that is right; a new folder for each set that is made."""
    numbers = iter(range(10**6))
    made = {"systems": SYSTEMS, "prompts": PROMPTS, "scale": "score", "seed": 0, "max_prompts": None}
    item = ratings.items[0].id
    return {
        "prepare": (lambda **given: rating.prepare(folder / str(next(numbers)), **given), made),
        "record": (ratings.record, {"rater": "anna", "item": item, "choice": "2"}),
        "next": (ratings.next, {"rater": "anna"}),
        "report": (rating.report, {"ratings": ratings, "samples": 5, "seed": 0}),
        "alpha": (rating.alpha, {"units": [[0, 1], [1, 1]], "values": [0, 1], "level": "nominal"}),
        "alpha_measure": (rating.alpha_measure, {"units": [[0, 1]], "values": [0, 1], "level": "ordinal"}),
        "bradley_terry_strengths": (rating.bradley_terry_strengths, {"wins": [[0, 3], [1, 0]], "prior": 0.5}),
    }


NAMES = ["prepare", "record", "next", "report", "alpha", "alpha_measure", "bradley_terry_strengths"]


def test_every_name_is_called_or_is_what_a_call_gives(ratings, tmp_path):
    assert set(calls(ratings, tmp_path)) == set(NAMES)
    paths = {"SCALES", "read_sheet", "write_sheet"}  # a path that is none is the file system's to refuse
    assert all(is_dataclass(getattr(rating, name)) for name in set(rating.__all__) - paths - set(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_wrong_types_are_refused_with_a_message(name, ratings, tmp_path, complaints):
    call, right = calls(ratings, tmp_path)[name]
    call(**right)
    for argument in right:
        found = complaints(lambda value, argument=argument: call(**right | {argument: value}))
        assert found == {}, argument
