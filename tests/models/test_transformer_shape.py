import pytest
from torch import nn

from unspool.models.transformer_shape import TransformerShape, TransformerStack
from unspool.nn.positions import RotaryScaling

SHAPE = {"width": 16, "heads": 4, "inner_width": 24}


def build(layers=1, **changes):
    stack = TransformerStack()
    stack.init_stack(TransformerShape(**SHAPE, **changes), layers, causal=True, cross=True)
    return stack


def test_head_width_and_kv_heads_default_to_the_other_sizes():
    shape = TransformerShape(**SHAPE)
    assert shape.each_width == 4
    block = shape.block(causal=False)
    assert (block.attention.kv_heads, block.attention.causal) == (4, False)
    assert TransformerShape(**SHAPE, head_width=6).each_width == 6


def test_positions_are_rotary_or_added_or_absent():
    rotary, learned, none = (build(positions=it, context=8) for it in ("rotary", "learned", "none"))
    assert rotary._rotary is not None
    assert rotary.positions is None
    assert learned._rotary is None
    assert learned.positions.weight.shape == (8, 16)
    assert none._rotary is none.positions is None


def test_cross_attention_has_the_options_of_self_attention():
    (block,) = build(kv_heads=2, bias=True, norm="layer", norm_place="both").blocks
    assert block.attention.causal
    assert block.cross_attention.kv_heads == 2
    assert block.cross_attention.out.bias is not None
    assert isinstance(block.cross_attention_post_norm, nn.LayerNorm)


def test_post_norm_has_no_last_norm():
    assert isinstance(build(norm_place="post").norm, nn.Identity)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "batch"}, "'batch' is not a known value of TransformerShape.norm: choose from layer, rms"),
        ({"norm_place": "x"}, "'x' is not a known value of TransformerShape.norm_place"),
        (
            {"positions": "x"},
            "positions is 'x', but must be one of 'learned', 'none', 'rotary', 'sinusoidal'",
        ),
        ({"activation": "x"}, "'x' is not a known value of TransformerShape.activation"),
        ({"width": 0}, "width is 0, but must be a whole number ≥ 1"),
        ({"kv_heads": 0}, "kv_heads is 0, but must be a whole number ≥ 1"),
        ({"dropout": 1.0}, "dropout is 1.0, but must be"),
        ({"heads": 3}, "heads=3 must divide width=16"),
        ({"kv_heads": 3}, "kv_heads=3 must divide heads=4"),
        ({"head_width": 3}, "even head width, not 3"),
        ({"width": 15, "head_width": 4, "positions": "sinusoidal"}, "even width, not 15"),
        ({"width": 15, "head_width": 4, "positions": "sinusoidal_halves"}, "even width, not 15"),
        ({"positions": "learned"}, "positions='learned' needs context"),
        (
            {"rotary_scaling": RotaryScaling(8.0, 4.0, 4.0, 16)},
            "high_freq_factor 4 must be above low_freq_factor 4",
        ),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TransformerShape(**{**SHAPE, **changes})
