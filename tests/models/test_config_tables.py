import json
from dataclasses import replace

import pytest

from unspool.heads import SoftmaxHeadConfig
from unspool.models import MODELS, TransformerConfig, configured, described
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
    said = described(LM)
    assert said["kind"] == "transformer_lm"
    assert configured(json.loads(json.dumps(said)), "model") == LM


def test_an_unknown_kind_is_named_with_its_neighbour():
    with pytest.raises(ValueError, match=r"'transformer_llm' .* \[model\]: did you mean 'transformer_lm'\?"):
        configured({"kind": "transformer_llm"}, "model")


def test_every_kind_can_be_built():
    assert all(hasattr(config, "build") for config in MODELS.values())


def test_a_part_has_its_own_kind():
    shape = replace(LM, head=SoftmaxHeadConfig(tied=False, bias=True))
    said = described(shape)
    assert said["head"] == {"kind": "softmax", "tied": False, "bias": True}
    assert configured(said, "model") == shape
    with pytest.raises(ValueError, match=r"'softmx' .* \[model\.head\]: did you mean 'softmax'\?"):
        configured({**said, "head": {"kind": "softmx"}}, "model")
    with pytest.raises(
        ValueError, match=r'model\.head is .* must be a table: write head = \{kind = "kerbs"\}'
    ):
        configured({**said, "head": "kerbs"}, "model")
