from unspool.nn.compiled import parts
from unspool.nn.feed_forward import ACTIVATIONS
from unspool.nn.norms import NORMS
from unspool.nn.residual import PLACES


def test_every_choice_of_the_blocks_has_its_number():
    assert parts.NORMS.keys() == NORMS.keys()
    assert parts.PLACES.keys() == PLACES.keys()
    assert parts.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    assert (parts.NORMS["rms"], parts.NORMS["layer"]) == (parts.RMS, parts.LAYER)
    assert list(parts.PLACES.values()) == [parts.PRE, parts.POST, parts.BOTH]
    chosen = [parts.ACTIVATIONS[name] for name in ("swiglu", "relu", "gelu", "gelu_tanh")]
    assert chosen == [parts.SWIGLU, parts.RELU, parts.GELU, parts.GELU_TANH]
