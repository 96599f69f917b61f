from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.config import build, check_types, choose, convert, find_word, to_dict, to_kind_dict


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    name: str | None = None


@dataclass(frozen=True)
class Outer:
    size: int
    deep: bool = False
    inner: Inner = field(default_factory=Inner)
    steps: tuple[int, ...] = ()
    how: Literal["mean", "last"] = "mean"


@dataclass(frozen=True)
class Other:
    size: int = 1


def test_a_mapping_becomes_the_dataclass_by_hand():
    made = build(Outer, {"size": 3, "inner": {"rate": 1}, "steps": [1, 2]}, "model")
    assert made == Outer(3, inner=Inner(1.0), steps=(1, 2))
    assert type(made.inner.rate) is float


@given(
    st.builds(
        Outer,
        st.integers(),
        st.booleans(),
        st.builds(Inner, st.floats(allow_nan=False), st.none() | st.text()),
        st.lists(st.integers()).map(tuple),
        st.sampled_from(["mean", "last"]),
    )
)
def test_the_plain_form_builds_an_equal_config(made):
    assert build(Outer, to_dict(made), "model") == made
    assert choose({"a": Other, "b": Outer}, to_kind_dict({"a": Other, "b": Outer}, made), "model") == made


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 1, "depe": True}, r"'depe' is not a known key of \[model\]: did you mean 'deep'\?"),
        ({"size": 1, "zzz": True}, "choose from deep, how, inner, size, steps"),
        ({}, r"\[model\] lacks 'size'"),
        ({"size": "3"}, "model.size is '3', but must be of type int"),
        ({"size": 1.0}, "model.size is 1.0, but must be of type int"),
        ({"size": True}, "model.size is True, but must be of type int"),
        ({"size": 1, "inner": {"rate": "x"}}, "model.inner.rate is 'x', but must be of type float"),
        (
            {"size": 1, "inner": {"rat": 1.0}},
            r"'rat' is not a known key of \[model.inner\]: did you mean 'rate'",
        ),
        ({"size": 1, "steps": [1, "a"]}, "model.steps is 'a'"),
        ({"size": 1, "steps": 3}, "model.steps is 3, but must be of type list"),
        ({"size": 1, "how": "maen"}, "did you mean 'mean'"),
    ],
)
def test_values_of_the_wrong_type_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        build(Outer, settings, "model")


def test_the_kind_must_be_known():
    choices = {"outer": Outer, "other": Other}
    with pytest.raises(ValueError, match='lacks "kind": choose from other, outer'):
        choose(choices, {"size": 1}, "model")
    with pytest.raises(ValueError, match=r"'outr' is not a known kind of \[model\]: did you mean 'outer'"):
        choose(choices, {"kind": "outr"}, "model")
    assert choose(choices, {"kind": "other"}, "model") == Other()


def test_a_whole_number_that_no_float_can_be():
    with pytest.raises(ValueError, match=r"train\.lr has 401 digits, too many for a float"):
        convert(10**400, float, "train.lr")


def test_a_dataclass_made_by_hand_is_checked_too():
    @dataclass(frozen=True)
    class Sizes:
        size: int
        rate: float = 0.1
        names: tuple[str, ...] = ()
        inner: Inner | Other | None = None

    made = Sizes(np.int64(3), np.float32(0.5), ["a"])
    check_types(made)
    assert (made.size, type(made.size), type(made.rate), made.names) == (3, int, float, ("a",))
    for wrong, message in [
        (Sizes("3"), "Sizes.size is '3', but must be of type int"),
        (Sizes(True), "Sizes.size is True, but must be of type int"),
        (Sizes(np.array([1, 2])), "Sizes.size is array"),
        (Sizes(1, None), "Sizes.rate is None, but must be of type float"),
        (Sizes(1, 0.5, "a"), "Sizes.names is 'a'"),
        (Sizes(1, inner=4), "Sizes.inner is 4, but must be of type Inner or Other or None"),
        (Sizes(1, inner={1: 2}), "'1' is not a known key of"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_types(wrong)


def test_a_word_among_choices_is_a_word():
    choices = ("stored", "int8")
    assert [find_word(it, choices) for it in ("int8", "int4", None, 8)] == ["int8", None, None, None]
    assert find_word(np.array(["int8"]), choices) is None
