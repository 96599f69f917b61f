from unspool.models.engine_choice import PLAIN
from unspool.nn.compiled import parts
from unspool.nn.feed_forward import ACTIVATIONS
from unspool.nn.norms import NORMS
from unspool.nn.residual import PLACES


def test_every_choice_that_compiled_steps_know_has_its_number_and_no_other():
    assert parts.NORMS.keys() == NORMS.keys()
    assert parts.PLACES.keys() == set(PLAIN["norm_place"]) <= PLACES.keys()
    assert parts.ACTIVATIONS.keys() == set(PLAIN["activation"]) <= ACTIVATIONS.keys()
    assert (parts.NORMS["rms"], parts.NORMS["layer"]) == (parts.RMS, parts.LAYER)
    assert list(parts.PLACES.values()) == [parts.PRE, parts.POST, parts.BOTH]
    chosen = [parts.ACTIVATIONS[name] for name in ("swiglu", "relu", "gelu", "gelu_tanh")]
    assert chosen == [parts.SWIGLU, parts.RELU, parts.GELU, parts.GELU_TANH]
