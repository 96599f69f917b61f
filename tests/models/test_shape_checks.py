import math
from types import SimpleNamespace

import pytest

from unspool.models.model_config import (
    check_build_arguments,
    check_choices,
    check_fractions,
    check_given,
    check_positive,
    check_sizes,
)
from unspool.models.rnn_lm import RNNConfig
from unspool.tokenization.vocabulary import train_characters


def test_valid_shapes_pass():
    config = SimpleNamespace(cell="gru", width=3, head_width=None, dropout=0.0)
    check_choices(config, cell=("gru", "lstm"))
    check_sizes(config, "width", "head_width")
    check_fractions(config, "dropout")
    check_positive(SimpleNamespace(beta=2.0), "beta")
    check_given({"context": 3}, "it")


def test_invalid_shapes_are_named():
    with pytest.raises(ValueError, match=r"cell='gro' is unknown: choose from gru, lstm"):
        check_choices(SimpleNamespace(cell="gro"), cell=("lstm", "gru"))
    with pytest.raises(ValueError, match="width=0 must be at least 1"):
        check_sizes(SimpleNamespace(width=0), "width")
    with pytest.raises(ValueError, match="width=9223372036854775808 is more than 2147483647"):
        check_sizes(SimpleNamespace(width=2**63), "width")
    for dropout in (1.0, -0.1):
        with pytest.raises(ValueError, match=r"dropout=.* must be at least 0 and below 1"):
            check_fractions(SimpleNamespace(dropout=dropout), "dropout")
    with pytest.raises(ValueError, match="positions='learned' needs context: give it a value"):
        check_given({"context": None}, "positions='learned'")
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"beta=.* must be positive and finite"):
            check_positive(SimpleNamespace(beta=beta), "beta")


def test_a_model_is_made_from_its_own_settings_and_a_tokenizer():
    config = RNNConfig(vocab_size=5, width=2)
    check_build_arguments(config, RNNConfig, None)
    check_build_arguments(config, RNNConfig, train_characters(["ab"]))
    for wrong in (None, {"width": 2}, RNNConfig, SimpleNamespace(width=2)):
        with pytest.raises(TypeError, match=r"this model is made from RNNConfig\(…\), and .* is none"):
            check_build_arguments(wrong, RNNConfig, None)
    for text in ("ab", 3, str, object()):
        with pytest.raises(TypeError, match=r"text is .*, but must be a tokenizer"):
            check_build_arguments(config, RNNConfig, text)
