import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.training.toml import dumps

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(words, values, max_size=4))
def test_what_is_written_is_read_again(settings):
    assert tomllib.loads(dumps(settings)) == settings


def test_by_hand():
    settings = {"train": {"lr": 1e-3, "betas": (0.9, 0.98), "x": None}, "seed": 1, "a b": "ä\x7f\n"}
    assert dumps(settings) == (
        'seed = 1\n"a b" = "ä\\u007f\\n"\n\n[train]\nlr = 0.001\nbetas = [0.9, 0.98]\n'
    )


def test_what_toml_has_no_word_for_is_refused():
    with pytest.raises(TypeError, match="object"):
        dumps({"x": object()})
