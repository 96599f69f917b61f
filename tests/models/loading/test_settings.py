import math

import pytest
from hypothesis import given, strategies as st

from unspool.models.loading.config_reader import ConfigReader

SETTINGS = ConfigReader(
    "config.json",
    {"m.layers": 3, "m.eps": 1e-5, "m.tied": False, "m.kind": "silu", "m.null": None, "m.rope": {"theta": 5}},
    "m.",
)


def test_values_by_type():
    assert SETTINGS.integer("layers") == 3
    assert SETTINGS.number("eps") == 1e-5
    assert SETTINGS.number("layers") == 3.0
    assert SETTINGS.flag("tied") is False
    assert SETTINGS.word("kind") == "silu"
    assert SETTINGS.group("rope").number("theta") == 5.0
    assert SETTINGS.group("absent").values == {}


def test_absent_and_null_give_the_default():
    assert SETTINGS.integer("null", 4) == SETTINGS.integer("absent", 4) == 4
    assert SETTINGS.flag("absent", True) is True
    assert SETTINGS.has("layers")
    assert not SETTINGS.has("null")


@pytest.mark.parametrize(
    ("read", "key", "message"),
    [
        (SETTINGS.integer, "absent", r"config\.json: m\.absent is missing; expected a whole number"),
        (SETTINGS.number, "null", r"m\.null is missing; expected a number"),
        (SETTINGS.flag, "absent", r"m\.absent is missing; expected true or false"),
        (SETTINGS.word, "absent", r"m\.absent is missing; expected a string"),
        (SETTINGS.integer, "eps", r"m\.eps is 1e-05; expected a whole number from 1"),
        (SETTINGS.integer, "tied", r"m\.tied is False; expected a whole number"),
        (SETTINGS.number, "tied", r"m\.tied is False; expected a finite number above 0"),
        (SETTINGS.number, "kind", r"m\.kind is 'silu'; expected a finite number above 0"),
        (SETTINGS.flag, "layers", r"m\.layers is 3; expected true or false"),
        (SETTINGS.word, "layers", r"m\.layers is 3; expected a string"),
        (SETTINGS.group, "layers", r"m\.layers is 3; expected a table"),
    ],
)
def test_a_wrong_value_names_file_key_and_expectation(read, key, message):
    with pytest.raises(ValueError, match=message):
        read(key)


def test_demand_refuses_what_cannot_be_followed():
    SETTINGS.demand("kind", "silu")
    SETTINGS.demand("absent", "anything")
    with pytest.raises(
        ValueError, match=r"m\.kind is 'silu'; expected 'gelu', the only kind that is supported"
    ):
        SETTINGS.demand("kind", "gelu")


@given(st.integers() | st.floats() | st.text() | st.booleans() | st.lists(st.integers()))
def test_an_integer_is_in_range_or_an_error(value):
    settings = ConfigReader("x", {"k": value})
    try:
        found = settings.integer("k")
    except ValueError:
        assert not (type(value) is int and 1 <= value < 2**31)
    else:
        assert type(value) is int
        assert 1 <= found < 2**31


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -1.0, 0, "1", 10**400], ids=lambda value: str(value)[:9]
)
def test_a_number_is_finite_and_above_zero(value):
    with pytest.raises(ValueError, match="expected a finite number above 0"):
        ConfigReader("x", {"k": value}).number("k")
