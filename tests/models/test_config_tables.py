import json
from dataclasses import replace

import pytest

from unspool.heads import SoftmaxHeadConfig
from unspool.models import MODELS, TransformerConfig, config_from_dict, config_to_dict
from unspool.nn.positions import RotaryScaling

LM = TransformerConfig(
    vocab_size=9,
    width=8,
    layers=1,
    heads=2,
    kv_heads=2,
    head_width=4,
    inner_width=8,
    context=16,
    rotary_scaling=RotaryScaling(8.0, 1.0, 4.0, 16),
)


def test_a_shape_survives_json():
    said = config_to_dict(LM)
    assert said["kind"] == "transformer_lm"
    assert config_from_dict(json.loads(json.dumps(said)), "model") == LM


def test_an_unknown_kind_is_named_with_its_neighbour():
    with pytest.raises(ValueError, match=r"'transformer_llm' .* \[model\]: did you mean 'transformer_lm'"):
        config_from_dict({"kind": "transformer_llm"}, "model")


def test_every_kind_can_be_built():
    assert all(hasattr(config, "build") for config in MODELS.values())


def test_a_part_has_its_own_kind():
    shape = replace(LM, head=SoftmaxHeadConfig(tied=False, bias=True))
    said = config_to_dict(shape)
    assert said["head"] == {"kind": "softmax", "tied": False, "bias": True}
    assert config_from_dict(said, "model") == shape
    with pytest.raises(ValueError, match=r"'softmx' .* \[model\.head\]: did you mean 'softmax'"):
        config_from_dict({**said, "head": {"kind": "softmx"}}, "model")
    with pytest.raises(
        ValueError, match=r'model\.head is .* must be a table: write head = \{kind = "kerbs"\}'
    ):
        config_from_dict({**said, "head": "kerbs"}, "model")
