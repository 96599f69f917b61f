from unspool.nn.compiled import parts
from unspool.nn.feed_forward import ACTIVATIONS
from unspool.nn.norms import NORMS


def test_every_choice_that_a_model_has_has_its_number_and_no_other():
    assert parts.NORMS.keys() == NORMS.keys()
    assert parts.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    assert (parts.NORMS["rms"], parts.NORMS["layer"]) == (parts.RMS, parts.LAYER)
    chosen = [parts.ACTIVATIONS[name] for name in ("swiglu", "relu", "gelu", "gelu_tanh", "geglu", "silu")]
    assert chosen == [parts.SWIGLU, parts.RELU, parts.GELU, parts.GELU_TANH, parts.GEGLU, parts.SILU]


def test_what_has_no_keys_keeps_one_of_the_whole_width():
    shape = parts.Shape(24, 1, 4, 2, 10, 4, 10, 0, 1e-5, False, 0, 2)
    assert (shape.key_heads, shape.key_width) == (2, 10)
    keyless = shape._replace(keyless=True)
    assert (keyless.key_heads, keyless.key_width) == (1, 24)


def test_every_part_of_a_layer_has_a_place_of_its_own():
    names = ("ATTENTION", "CROSS", "FEED_FORWARD", "QUERY", "KEY")
    norms = [getattr(parts, name) for name in dir(parts) if name.endswith("_NORM") and name.startswith(names)]
    matrices = [parts.QKV, parts.ATTENTION_OUT, parts.UP, parts.DOWN, parts.CROSS_QUERY, parts.CROSS_OUT]
    assert sorted(norms + matrices) == list(range(parts.PARTS))
