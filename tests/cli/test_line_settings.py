import pytest

from unspool.cli.prompts import CHECKS, read_settings

RIGHT = {
    "chat": [True, False],
    "decoder": ["Greedy()"],
    "max_new_tokens": [1, 10**6],
    "n": [1],
    "seed": [0, 2**70],
    "stop": ["x", [], ["x", "y"]],
    "stop_ids": [[], [0, 7]],
    "stop_loops": [True],
    "stop_approximate_loops": [True],
    "system": ["Be brief."],
}
WRONG = {
    "chat": [0, "yes"],
    "decoder": [3, ["Greedy()"]],
    "max_new_tokens": [0, 1.5, "3", True, float("nan")],
    "n": [0, -1, []],
    "seed": [-1, 0.5, False],
    "stop": [3, [3], {"x": 1}],
    "stop_ids": [7, ["a"], [-1], [True]],
    "stop_loops": ["true"],
    "stop_approximate_loops": ["true"],
    "system": [[]],
}


def test_every_setting_is_tried_here():
    assert set(RIGHT) == set(WRONG) == set(CHECKS)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in RIGHT for value in RIGHT[name]])
def test_what_is_right_is_taken_as_it_is(name, value):
    assert read_settings({"prompt": "a", name: value}) == {name: value}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_what_is_wrong_is_named_with_what_it_should_be(name, value):
    with pytest.raises(ValueError, match=f'^"{name}" must be .*, found '):
        read_settings({name: value})


def test_null_is_not_given():
    assert read_settings(dict.fromkeys(CHECKS)) == {}
