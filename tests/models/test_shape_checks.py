import math
from types import SimpleNamespace

import pytest

from unspool.models.model_config import check_build_arguments
from unspool.models.rnn_models import RNNConfig
from unspool.models.trigram import TrigramConfig
from unspool.tokenization.vocabulary import train_characters


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "gro"}, "'gro' is not a known value of RNNConfig.cell: did you mean 'gru'?"),
        ({"width": 0}, "width is 0, but must be a whole number ≥ 1"),
        ({"width": 2**63}, "width is 9223372036854775808, which is more than 1,000,000,000,000"),
        ({"dropout": 1.0}, "dropout is 1.0, .* 0 ≤ dropout < 1"),
        ({"dropout": -0.1}, "dropout is -0.1, .* 0 ≤ dropout < 1"),
    ],
)
def test_invalid_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        RNNConfig(**{"vocab_size": 5, "width": 2, **changes})


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_factors_are_positive_and_finite(beta):
    with pytest.raises(ValueError, match=r"TrigramConfig\.beta is .* a finite number, 0 < beta"):
        TrigramConfig(vocab_size=5, width=2, inner_width=3, beta=beta)


def test_a_model_is_made_from_its_own_settings_and_a_tokenizer():
    config = RNNConfig(vocab_size=5, width=2)
    check_build_arguments(config, RNNConfig, None)
    check_build_arguments(config, RNNConfig, train_characters(["ab"]))
    for wrong in (None, {"width": 2}, RNNConfig, SimpleNamespace(width=2)):
        with pytest.raises(TypeError, match=r"this model is built from a RNNConfig, not from "):
            check_build_arguments(wrong, RNNConfig, None)
    for text in ("ab", 3, str, object()):
        with pytest.raises(TypeError, match=r"tokenizer is .*, but must be a tokenizer"):
            check_build_arguments(config, RNNConfig, text)
