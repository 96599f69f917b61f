import math

import pytest
from hypothesis import given, strategies as st

from unspool.models.loading.config_reader import ConfigReader, UnsupportedModelError

SETTINGS = ConfigReader(
    "config.json",
    {"m.layers": 3, "eps": 1e-5, "tied": False, "kind": "silu", "null": None, "rope": {"theta": 5}},
    {"layers": "m.layers", "absent": "m.absent"},
)


def test_values_by_type():
    assert SETTINGS.integer("layers") == 3
    assert SETTINGS.number("eps") == 1e-5
    assert SETTINGS.number("layers") == 3.0
    assert SETTINGS.flag("tied") is False
    assert SETTINGS.string("kind") == "silu"
    assert SETTINGS.table("rope").number("theta") == 5.0
    assert SETTINGS.table("absent").values == {}


def test_absent_and_null_keys_give_the_default():
    assert SETTINGS.integer("null", 4) == SETTINGS.integer("absent", 4) == 4
    assert SETTINGS.flag("absent", True) is True
    assert SETTINGS.has("layers")
    assert not SETTINGS.has("null")


@pytest.mark.parametrize(
    ("read", "key", "message"),
    [
        (SETTINGS.integer, "absent", r"config\.json: m\.absent is missing; expected a whole number"),
        (SETTINGS.number, "null", r"null is missing; expected a finite number"),
        (SETTINGS.flag, "absent", r"m\.absent is missing; expected true or false"),
        (SETTINGS.string, "absent", r"m\.absent is missing; expected a string"),
        (SETTINGS.integer, "eps", r"eps is 1e-05; expected a whole number from 1"),
        (SETTINGS.integer, "tied", r"tied is False; expected a whole number"),
        (SETTINGS.number, "tied", r"tied is False; expected a finite number above 0"),
        (SETTINGS.number, "kind", r"kind is 'silu'; expected a finite number above 0"),
        (SETTINGS.flag, "layers", r"m\.layers is 3; expected true or false"),
        (SETTINGS.string, "layers", r"m\.layers is 3; expected a string"),
        (SETTINGS.table, "layers", r"m\.layers is 3; expected a table"),
    ],
)
def test_wrong_values_name_file_key_and_expectation(read, key, message):
    with pytest.raises(ValueError, match=message):
        read(key)


def test_require_rejects_other_values():
    SETTINGS.require("kind", "silu")
    SETTINGS.require("absent", "anything")
    with pytest.raises(ValueError, match=r"kind is 'silu'; only 'gelu' is supported"):
        SETTINGS.require("kind", "gelu")


@given(st.integers() | st.floats() | st.text() | st.booleans() | st.lists(st.integers()))
def test_integers_are_in_range(value):
    settings = ConfigReader("x", {"k": value})
    try:
        result = settings.integer("k")
    except ValueError:
        assert not (type(value) is int and 1 <= value < 2**31)
    else:
        assert type(value) is int
        assert 1 <= result < 2**31


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -1.0, 0, "1", 10**400], ids=lambda value: str(value)[:9]
)
def test_numbers_are_finite_and_above_zero(value):
    with pytest.raises(ValueError, match="expected a finite number above 0"):
        ConfigReader("x", {"k": value}).number("k")


def test_unsupported_options_differ_from_wrong_values():
    settings = ConfigReader("config.json", {"hidden_act": "mish", "hidden_size": "wide"})
    with pytest.raises(UnsupportedModelError, match="hidden_act is 'mish'"):
        settings.require("hidden_act", "silu")
    with pytest.raises(ValueError, match="hidden_size is 'wide'") as caught:
        settings.integer("hidden_size")
    assert not isinstance(caught.value, UnsupportedModelError)
