from unspool.engine import weight_table
from unspool.nn.norms import NORMS
from unspool.nn.transformer import ACTIVATIONS


def test_every_choice_that_a_model_has_has_its_number_and_no_other():
    assert weight_table.NORMS.keys() == NORMS.keys()
    assert weight_table.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    assert (weight_table.NORMS["rms"], weight_table.NORMS["layer"]) == (weight_table.RMS, weight_table.LAYER)
    chosen = [
        weight_table.ACTIVATIONS[name] for name in ("swiglu", "relu", "gelu", "gelu_tanh", "geglu", "silu")
    ]
    assert chosen == [
        weight_table.SWIGLU,
        weight_table.RELU,
        weight_table.GELU,
        weight_table.GELU_TANH,
        weight_table.GEGLU,
        weight_table.SILU,
    ]


def test_what_has_no_keys_keeps_one_of_the_whole_width():
    shape = weight_table.Shape(24, 1, 4, 2, 10, 4, 10, 0, 1e-5, False, 0, 2)
    assert (shape.key_heads, shape.key_width) == (2, 10)
    keyless = shape._replace(keyless=True)
    assert (keyless.key_heads, keyless.key_width) == (1, 24)


def test_every_part_of_a_layer_has_a_place_of_its_own():
    names = ("ATTENTION", "CROSS", "FEED_FORWARD", "QUERY", "KEY")
    norms = [
        getattr(weight_table, name)
        for name in dir(weight_table)
        if name.endswith("_NORM") and name.startswith(names)
    ]
    matrices = [
        weight_table.QKV,
        weight_table.ATTENTION_OUT,
        weight_table.UP,
        weight_table.DOWN,
        weight_table.CROSS_QUERY,
        weight_table.CROSS_OUT,
    ]
    assert sorted(norms + matrices) == list(range(weight_table.PARTS))
